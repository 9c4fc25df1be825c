// For tests of requests: import this before the module that makes them.

import { vi } from 'vitest'

const { Request: NodeRequest } = globalThis
// A browser takes the address of a request as relative to the page.
globalThis.Request = class extends NodeRequest {
  constructor(input: RequestInfo | URL, init?: RequestInit) {
    super(typeof input === 'string' ? new URL(input, 'http://console.test') : input, init)
  }
}

interface Sent {
  path: string
  key: string | null
  body: unknown
}

/** Answers the requests in turn, the last answer again and again; an Error is a lost connection. */
export function fakeServer(...answers: (Error | { status: number; body: object })[]) {
  const sent: Sent[] = []
  vi.stubGlobal('fetch', async (request: Request) => {
    const path = new URL(request.url).pathname
    sent.push({ path, key: request.headers.get('idempotency-key'), body: await request.json() })
    const answer = answers[Math.min(sent.length, answers.length) - 1]
    if (answer === undefined || answer instanceof Error) throw answer
    return Response.json(answer.body, { status: answer.status })
  })
  return sent
}
