/** How long a secret stays valid beside the one that replaces it, by seconds; the API allows 30 days at most. */
export const OVERLAPS = [
  { value: '0', label: 'not at all' },
  { value: '3600', label: 'one hour' },
  { value: '86400', label: 'one day' },
  { value: '604800', label: '7 days' },
  { value: '2592000', label: '30 days' },
]
