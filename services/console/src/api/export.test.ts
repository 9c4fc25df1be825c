import { expect, test, vi } from 'vitest'
import { exportOrganisation } from './export'
import { Problem } from './problem'

/** Answers with these pieces, which end where the network ends them and not where lines do. */
function answer(...pieces: string[]) {
  const encoder = new TextEncoder()
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const piece of pieces) controller.enqueue(encoder.encode(piece))
      controller.close()
    },
  })
  vi.stubGlobal('fetch', async () => new Response(body))
}

const run = (onProgress = vi.fn()) => exportOrganisation('7', onProgress, new AbortController().signal)

test('an export is counted by kind, whatever pieces it comes in', async () => {
  const lines =
    '{"kind":"member","data":{"name":"Zoë"}}\n{"kind":"member","data":{}}\n{"kind":"end","data":{}}\n'
  const onProgress = vi.fn()
  answer(lines.slice(0, 50), lines.slice(50, 60), lines.slice(60))
  const { file, counts } = await run(onProgress)
  expect(await file.text()).toBe(lines)
  expect(counts).toEqual({ member: 2 })
  expect(onProgress).toHaveBeenLastCalledWith({ lines: 2, bytes: file.size })
})

test('an export without its end is no export', async () => {
  answer('{"kind":"member","data":{}}\n')
  await expect(run()).rejects.toThrow('stopped after 1 line')
})

test('an export that the server breaks off has its reason', async () => {
  answer('{"kind":"member","data":{}}\n{"kind":"error","data":{"status":503,"detail":"the store is away"}}\n')
  await expect(run()).rejects.toThrow('The store is away.')
})

test('an export that is refused has the answer of the server', async () => {
  vi.stubGlobal('fetch', async () => Response.json({ status: 403, detail: 'not yours' }, { status: 403 }))
  const error = await run().catch((error) => error)
  expect(error).toBeInstanceOf(Problem)
  expect(error.status).toBe(403)
})

test('a lost connection says that the server does not answer', async () => {
  vi.stubGlobal('fetch', async () => {
    throw new TypeError('network')
  })
  const error = await run().catch((error) => error)
  expect(error).toBeInstanceOf(Problem)
  expect(error.isOffline).toBe(true)
})
