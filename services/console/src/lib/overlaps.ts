/** How long a secret stays valid beside the one that replaces it, by seconds; the API allows 30 days at most. */
export const OVERLAPS = [
  { value: '0', label: 'not at all' },
  { value: '3600', label: 'one hour' },
  { value: '86400', label: 'one day' },
  { value: '604800', label: '7 days' },
  { value: '2592000', label: '30 days' },
]

/** Why a credential with two passwords is rotated: `previous` and `current` name the password that stays valid. */
export type Way = 'previous' | 'current' | 'leaked'

/** The overlaps that are left while a previous password is valid, until `until`. The first one is that of most people. */
export function overlapsOf(way: Way | null, until: number, now: number) {
  const some = OVERLAPS.filter(({ value }) => value !== '0')
  switch (way) {
    case 'current':
      return some
    case 'previous':
      // The server ends a password that is kept never sooner than before.
      return [
        { value: '0', label: 'as long as before' },
        ...some
          .filter(({ value }) => now + Number(value) * 1_000 > until)
          .map(({ value, label }) => ({ value, label: `${label} from now` })),
      ]
    default:
      return []
  }
}

interface Rotated {
  previous_secret_until_ms?: number | null
}

/** The time until which the previous password of a credential is valid, too; null: there is none. */
export const previousUntil = ({ previous_secret_until_ms: until }: Rotated, now: number) =>
  until != null && until > now ? until : null
