import { afterEach, expect, test, vi } from 'vitest'
import { kick, purge } from './live'

// A page has an address that paths are relative to. The client of the API takes `Request` when it is imported.
vi.hoisted(() => {
  const OfThisTest = globalThis.Request
  vi.stubGlobal(
    'Request',
    class extends OfThisTest {
      constructor(url: string, init?: RequestInit) {
        super(new URL(url, 'http://console.test'), init)
      }
    },
  )
})

afterEach(() => vi.unstubAllGlobals())

test.each([
  ['pump-7', 'pump-7'],
  ['plant/pump 7', 'plant%2Fpump%207'],
  ['base64:cHVtcC03', 'base64%3AYmFzZTY0OmNIVnRjQzAz'],
  ['base64:\u00fc\u00ff?>', 'base64%3AYmFzZTY0OsO8w78_Pg'],
  ['.', 'base64%3ALg'],
  ['..', 'base64%3ALi4'],
])('the client %j is named so that no other client is meant', async (id, part) => {
  const asked: string[] = []
  vi.stubGlobal('fetch', async (request: Request) => {
    asked.push(`${request.method} ${new URL(request.url).pathname}`)
    return new Response(null, { status: 204 })
  })
  const path = { organisation: 'o', broker: 'b' }
  await kick(path, id)
  await purge(path, id)
  const broker = '/api/v1/organisations/o/brokers/b'
  expect(asked).toEqual([`DELETE ${broker}/clients/${part}`, `DELETE ${broker}/sessions/${part}`])
})
