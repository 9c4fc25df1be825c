// Answers that public/first.js asked for before this script ran.

declare global {
  var firstAnswers: Map<string, Promise<Response>> | undefined
}

/** The answer to a request that is under way already. Each counts once, and none after a change. */
export function firstAnswer({ method, url }: Request): Promise<Response> | undefined {
  const answers = globalThis.firstAnswers
  if (method !== 'GET') {
    answers?.clear()
    return undefined
  }
  const answer = answers?.get(url)
  answers?.delete(url)
  return answer
}
