const DAY_MS = 86_400_000

/** Whether a broker was created within a day. 0: the broker of a server without accounts, which has no time of creation. */
export const isFirstDay = (createdAtMs: number, now: number) =>
  createdAtMs === 0 || now - createdAtMs < DAY_MS
