// Answers that public/first.js asked for before this script ran.

declare global {
  /** By method and address. */
  var firstAnswers: Map<string, Promise<Response>> | undefined
}

/** The answer to a request that is under way already. Each counts once, and none after a change that the page makes itself. */
export function firstAnswer({ method, url }: Request): Promise<Response> | undefined {
  const answers = globalThis.firstAnswers
  const asked = `${method} ${url}`
  const answer = answers?.get(asked)
  if (answer) answers?.delete(asked)
  else if (method !== 'GET') answers?.clear()
  return answer
}
