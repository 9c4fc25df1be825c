// Sends requests whose answer is shown only once, such as a new secret. If the connection breaks before the answer arrives,
// the server may have done what was asked: a repetition with the same Idempotency-Key gets the first answer.

import { useState } from 'react'
import { idempotencyKey } from './client'
import { Problem } from './problem'

/** Outcome of a failed attempt. `unprocessed`: this attempt ended before the server looked up the key, so it
 * says nothing about an earlier attempt with the same key. */
type Outcome = 'refused' | 'lost' | 'unprocessed'

function outcomeOf(error: unknown): Outcome {
  if (!(error instanceof Problem) || error.isOffline || error.status >= 500) return 'lost'
  switch (error.status) {
    case 408: // A proxy has given up: the server may have had the request.
      return 'lost'
    case 425: // Too Early (RFC 8470): the request was not begun.
      return 'unprocessed'
    case 401: // The session has ended, unless the answer is about the code that was sent.
      return error.kind.includes(':second-factor-') ? 'refused' : 'unprocessed'
    case 403: // The role or a proxy. The server also refuses the stored answer to a person whose role has changed since; only its
      // sentence, in services/control/src/domain/change.rs, shows which it was.
      return error.message.includes('new Idempotency-Key') ? 'refused' : 'unprocessed'
    case 429: // Busy: a rate limit stopped the attempt. Otherwise too many codes were wrong, and the server has refused this one.
      return error.isBusy ? 'unprocessed' : 'refused'
    default:
      return 'refused'
  }
}

/** Whether no answer arrived, or one that leaves open what the server has done. */
export const isLost = (error: unknown) => outcomeOf(error) === 'lost'

/** Whether the server has answered a request and done nothing. Another error leaves open what it has done. */
export const isRefused = (error: unknown) => outcomeOf(error) === 'refused'

interface Sent<I> {
  input: I
  key: string
  /** Whether the server may have done what was asked although this page has no answer. */
  mayBeDone: boolean
}

type Repeats<I> = (earlier: I, input: I) => boolean

/** Repeats a request without an answer with its own Idempotency-Key, so that the server gives the first answer again.
 *
 * `repeats` decides whether a later request is a repetition of one that the server may have done; otherwise only one
 * with the same input is. */
export class Once<I extends object, T> {
  #unanswered: Sent<I> | null = null

  constructor(
    private readonly request: (input: I, key: string) => Promise<T>,
    private readonly repeats: Repeats<I> = isSame,
  ) {}

  ask = async (input: I): Promise<T> => {
    const earlier = this.#unanswered
    if (
      earlier &&
      (isSame(earlier.input, input) || (earlier.mayBeDone && this.repeats(earlier.input, input)))
    ) {
      try {
        return await this.#send(earlier)
      } catch (error) {
        if (this.#unanswered || isSame(earlier.input, input)) throw error
        // The server has refused the earlier input, so it has no answer that could be lost.
      }
    }
    return this.#send({ input, key: idempotencyKey(), mayBeDone: false })
  }

  async #send(sent: Sent<I>): Promise<T> {
    this.#unanswered = sent
    try {
      const answer = await this.request(sent.input, sent.key)
      this.#unanswered = null
      return answer
    } catch (error) {
      const outcome = outcomeOf(error)
      if (outcome === 'refused') this.#unanswered = null
      if (outcome === 'lost') sent.mayBeDone = true
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
