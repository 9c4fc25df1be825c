// Sentences about the signing keys of a webhook.

import { absolute } from './format'

interface Keys {
  key_number?: number | null
  previous_key_number?: number | null
  previous_key_until_ms?: number | null
  signed_by?: number[]
}

const keyList = (numbers: number[]) =>
  numbers.length === 1 ? `key ${numbers[0]}` : `keys ${numbers.join(' and ')}`

/** Which keys of a webhook sign its requests, and which ones have signed the last attempt. */
export function keysText(keys: Keys, now: number) {
  const { key_number, previous_key_number, previous_key_until_ms, signed_by = [] } = keys
  return {
    signs: signs(key_number, previous_key_number, previous_key_until_ms, now),
    lastAttempt: signed_by.length > 0 ? keyList(signed_by) : 'no key',
  }
}

/** The time until which a previous key signs, too; null: none does. */
export const overlapUntil = ({ previous_key_until_ms: until }: Keys, now: number) =>
  until != null && until > now ? until : null

function signs(
  number: Keys['key_number'],
  previous: Keys['previous_key_number'],
  until: Keys['previous_key_until_ms'],
  now: number,
) {
  if (number == null) return 'no key'
  if (previous == null || until == null || until <= now) return keyList([number])
  return `${keyList([number, previous])} until ${absolute(until)}, then by ${keyList([number])} alone`
}
