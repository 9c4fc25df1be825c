// Requests whose answer is shown once. If the connection breaks before the answer arrives, the server may have done what was asked.

import { useState } from 'react'
import { idempotencyKey } from './client'
import { Problem } from './problem'

/** Whether the server may have done what was asked although this page has no answer. */
const isLost = (error: unknown) => !(error instanceof Problem) || error.isOffline || error.status >= 500

interface Sent<I> {
  input: I
  key: string
}

type Repeats<I> = (earlier: I, input: I) => boolean

/** Repeats a request whose answer was lost with its own Idempotency-Key, so that the server gives the first answer again.
 *
 * `repeats` decides whether a later request is a repetition; otherwise only one with the same input is. */
export class Once<I extends object, T> {
  #unanswered: Sent<I> | null = null

  constructor(
    private readonly request: (input: I, key: string) => Promise<T>,
    private readonly repeats: Repeats<I> = isSame,
  ) {}

  ask = async (input: I): Promise<T> => {
    const earlier = this.#unanswered
    if (earlier && this.repeats(earlier.input, input)) {
      try {
        return await this.#send(earlier)
      } catch (error) {
        if (isLost(error) || isSame(earlier.input, input)) throw error
        // The server has refused the earlier input, so it has no answer that could be lost.
      }
    }
    return this.#send({ input, key: idempotencyKey() })
  }

  async #send(sent: Sent<I>): Promise<T> {
    this.#unanswered = sent
    try {
      const answer = await this.request(sent.input, sent.key)
      this.#unanswered = null
      return answer
    } catch (error) {
      if (!isLost(error)) this.#unanswered = null
      throw error
    }
  }
}

const isSame = (one: object, other: object) => JSON.stringify(one) === JSON.stringify(other)

/** Sends `request` so that a repetition after a lost answer has the same answer. */
export function useOnce<I extends object, T>(
  request: (input: I, key: string) => Promise<T>,
  repeats?: Repeats<I>,
) {
  const [once] = useState(() => new Once(request, repeats))
  return once.ask
}
