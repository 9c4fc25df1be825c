// Streams of server-sent events. A stream that ends or is refused opens again by itself. It is read with `fetch`, because an
// EventSource does not say why the server refuses it.

import { refusalOf } from './client'
import { answered, probe, silent } from './link'
import { offline, type Problem } from './problem'
import { isSessionOver } from './sessionOver'

interface Reader {
  onOpen?: () => void
  /** An event without a name is a "message". */
  onEvent: (name: string, data: string) => void
  /** The stream is not open now. The problem is null unless the server refuses the stream. */
  onLost?: (refusal: Problem | null) => void
  /** A browser opens at most six connections to a server, so a hidden page closes a stream unless this is set. */
  isKeptHidden?: boolean
}

/** Pause before a lost stream is opened again. */
const REOPEN_MS = 2_000
/** The same after a refusal without a time to wait: the limit of streams is reached until somebody closes one. */
const REFUSED_MS = 10_000

/** The server writes at least a comment each 15 s. A stream that is silent for longer has lost its connection. */
const SILENT_MS_MAX = 45_000

/** Reads the events of `url` until the returned function is called. */
export function readEvents(url: string, reader: Reader): () => void {
  const { onLost, isKeptHidden = false } = reader
  /** Undefined while the page is hidden. */
  let request: AbortController | undefined
  let timer: ReturnType<typeof setTimeout> | undefined
  const open = async () => {
    const own = new AbortController()
    request = own
    // Pages that wait for the next sign-in ask for nothing that the server would refuse.
    if (isSessionOver()) {
      timer = setTimeout(open, REOPEN_MS)
      return
    }
    const refusal = await readOnce(url, reader, own.signal)
    if (own.signal.aborted) return
    timer = setTimeout(open, pauseMs(refusal))
    onLost?.(refusal)
  }
  const stop = () => {
    clearTimeout(timer)
    request?.abort()
    request = undefined
  }
  const look = () => {
    if (document.visibilityState === 'hidden' && !isKeptHidden) {
      stop()
      onLost?.(null)
    } else if (!request) void open()
  }
  document.addEventListener('visibilitychange', look)
  look()
  return () => {
    document.removeEventListener('visibilitychange', look)
    stop()
  }
}

function pauseMs(refusal: Problem | null) {
  // 401: the person signs in again without leaving the page, and then the stream reopens.
  if (!refusal || refusal.status === 401) return REOPEN_MS
  return refusal.retryAfterS === null ? REFUSED_MS : Math.max(REOPEN_MS, refusal.retryAfterS * 1_000)
}

/** Reads one answer to its end. Returns why the server refuses the stream; null if the stream was open or the server did not answer. */
async function readOnce(url: string, reader: Reader, signal: AbortSignal) {
  const silence = new AbortController()
  let timer: ReturnType<typeof setTimeout> | undefined
  const heard = () => {
    clearTimeout(timer)
    timer = setTimeout(() => silence.abort(), SILENT_MS_MAX)
  }
  heard()
  try {
    return await readUntil(url, reader, AbortSignal.any([signal, silence.signal]), { signal, heard })
  } finally {
    clearTimeout(timer)
  }
}

interface Watched {
  /** The page does not want the stream any more. */
  signal: AbortSignal
  /** Something has come. */
  heard: () => void
}

async function readUntil(
  url: string,
  { onOpen, onEvent }: Reader,
  ended: AbortSignal,
  { signal, heard }: Watched,
) {
  let response: Response
  try {
    response = await fetch(url, {
      headers: { accept: 'text/event-stream' },
      cache: 'no-store',
      signal: ended,
    })
  } catch {
    if (!signal.aborted) silent()
    return null
  }
  if (ended.aborted) return null
  if (!response.ok || !response.body) {
    const problem = response.ok ? offline() : await refusalOf(response, url)
    return problem.isOffline ? null : problem
  }
  answered()
  onOpen?.()
  const texts = response.body.pipeThrough(new TextDecoderStream()).getReader()
  const stop = () => void texts.cancel().catch(() => {})
  ended.addEventListener('abort', stop)
  const parse = eventParser(onEvent)
  try {
    for (let part = await texts.read(); !part.done; part = await texts.read()) {
      heard()
      parse(part.value)
    }
  } catch {
    // The connection broke, or the page closed the stream.
  }
  // A stream that ends may mean that the server is unreachable, which a small request finds out.
  if (!signal.aborted) void probe()
  return null
}

/** Takes the text of a stream as it comes, cut anywhere, and calls `onEvent` for each complete event (HTML, 9.2.6). */
export function eventParser(onEvent: Reader['onEvent']) {
  let rest = ''
  let name = ''
  let data: string[] = []
  const end = () => {
    if (data.length > 0) onEvent(name || 'message', data.join('\n'))
    name = ''
    data = []
  }
  return (text: string) => {
    const lines = (rest + text).split('\n')
    rest = lines.pop() ?? ''
    for (const whole of lines) {
      const line = whole.endsWith('\r') ? whole.slice(0, -1) : whole
      if (line === '') end()
      const colon = line.indexOf(':')
      const field = colon < 0 ? line : line.slice(0, colon)
      const value = colon < 0 ? '' : line.slice(line[colon + 1] === ' ' ? colon + 2 : colon + 1)
      if (field === 'data') data.push(value)
      else if (field === 'event') name = value
    }
  }
}
