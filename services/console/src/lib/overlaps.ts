/** How long a secret stays valid beside the one that replaces it, by seconds; the API allows 30 days at most. */
export const OVERLAPS = [
  { value: '0', label: 'not at all' },
  { value: '3600', label: 'one hour' },
  { value: '86400', label: 'one day' },
  { value: '604800', label: '7 days' },
  { value: '2592000', label: '30 days' },
]

interface Rotated {
  previous_secret_until_ms?: number | null
}

/** The time until which the previous password of a credential is valid, too; null: there is none. */
export const previousUntil = ({ previous_secret_until_ms: until }: Rotated, now: number) =>
  until != null && until > now ? until : null
