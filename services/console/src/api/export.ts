// The export of an organisation: one JSON object a line, of which the last one says that it is complete.

import { plural } from '../lib/format'
import { offline, Problem, problemOf } from './problem'

interface Line {
  kind: string
  data: { status?: number; detail?: string }
}

export interface Progress {
  lines: number
  bytes: number
}

export interface Export {
  file: Blob
  /** Lines of each kind. */
  counts: Record<string, number>
}

const NEWLINE = 10

/** Downloads all lines, and throws a [Problem] if the export stops before its last line. */
export async function exportOrganisation(
  organisation: string,
  onProgress: (progress: Progress) => void,
  signal: AbortSignal,
): Promise<Export> {
  try {
    const answer = await fetch(`/api/v1/organisations/${organisation}/export`, { signal })
    if (!answer.ok) throw await problemOf(answer)
    return await read(answer.body as ReadableStream<Uint8Array<ArrayBuffer>>, onProgress)
  } catch (error) {
    if (error instanceof Problem || signal.aborted) throw error
    throw offline()
  }
}

async function read(
  body: ReadableStream<Uint8Array<ArrayBuffer>>,
  onProgress: (progress: Progress) => void,
): Promise<Export> {
  const pieces: Uint8Array<ArrayBuffer>[] = []
  const counts: Record<string, number> = {}
  const progress = { lines: 0, bytes: 0 }
  const decoder = new TextDecoder()
  let rest = ''
  let last: Line | null = null
  const reader = body.getReader()
  for (;;) {
    const { value: piece, done } = await reader.read()
    if (done) break
    pieces.push(piece)
    progress.bytes += piece.length
    rest += decoder.decode(piece, { stream: true })
    if (!piece.includes(NEWLINE)) continue
    const lines = rest.split('\n')
    rest = lines.pop() ?? ''
    for (const line of lines) {
      last = JSON.parse(line) as Line
      if (last.kind === 'end' || last.kind === 'error') continue
      counts[last.kind] = (counts[last.kind] ?? 0) + 1
      progress.lines += 1
    }
    onProgress({ ...progress })
  }
  if (last?.kind === 'error') {
    const { status = 500, detail = 'the server aborted the export' } = last.data
    throw new Problem({ status, detail })
  }
  if (last?.kind !== 'end') {
    const detail = `The export stopped after ${plural(progress.lines, 'line')}, so nothing was saved`
    throw new Problem({ status: 500, detail })
  }
  return { file: new Blob(pieces, { type: 'application/x-ndjson' }), counts }
}
