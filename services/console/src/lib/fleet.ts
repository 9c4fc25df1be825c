// Names of many devices, and the files of their credentials.

/** The API accepts at most this many devices in one request. */
export const BATCH_MAX = 1_000
/** The same with SCRAM. */
const SCRAM_BATCH_MAX = 100

export interface Device {
  user: string
  client_id: string | null
}

export interface Login {
  username: string
  client_id: string | null
  password: string
}

const device = (user: string, isBound: boolean): Device => ({ user, client_id: isBound ? user : null })

/** Prefix "pump-", first 7 and count 2 give pump-7 and pump-8. A bound device must use its user name as its client id. */
export const numbered = (prefix: string, first: number, count: number, isBound: boolean): Device[] =>
  Array.from({ length: Math.min(count, BATCH_MAX) }, (_, at) => device(`${prefix}${first + at}`, isBound))

/** One name in each line. */
export const pasted = (text: string, isBound: boolean): Device[] =>
  text
    .split(/\r\n|\r|\n/)
    .map((line) => line.trim())
    .filter((line) => line !== '')
    .map((user) => device(user, isBound))

/** Why the API would refuse these devices as one batch; null: it would not. */
export function batchProblem(devices: Device[], scram: boolean): string | null {
  const names = devices.length.toLocaleString('en-US')
  if (devices.length > BATCH_MAX) return `You entered ${names} names. A batch has at most 1,000.`
  if (scram && devices.length > SCRAM_BATCH_MAX) {
    return `These are ${names} names. A batch with SCRAM has at most 100.`
  }
  const seen = new Set<string>()
  for (const { user } of devices) {
    if (seen.has(user)) return `${user} is listed twice.`
    seen.add(user)
  }
  return null
}

/** The API names a device by its index in the request, a person by its user name. */
export function deviceProblems(wrong: Record<string, string>, devices: Device[]): string | undefined {
  const said = Object.entries(wrong)
    .filter(([field]) => field.startsWith('devices'))
    .map(([field, detail]) => {
      const at = /^devices\[(\d+)\]/.exec(field)?.[1]
      const user = at === undefined ? undefined : devices[Number(at)]?.user
      return user === undefined ? detail : `${user}: ${detail}`
    })
  return said.slice(0, 3).join(' ') || undefined
}

const cell = (text: string) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text)

/** RFC 4180, with a header. */
export const csvOf = (logins: Login[]) =>
  [
    ['username', 'client_id', 'password'],
    ...logins.map(({ username, client_id, password }) => [username, client_id ?? '', password]),
  ]
    .map((cells) => `${cells.map(cell).join(',')}\r\n`)
    .join('')

export const jsonOf = (logins: Login[]) => `${JSON.stringify(logins, null, 2)}\n`

const isOwnMachine = (host: string) => /^(localhost|127(\.\d+){3}|\[::1\])$/.test(host)

/** How a device claims its credential: with the command line, and without it. */
export function claimCommands(origin: string, token: string, user: string) {
  const { protocol, hostname } = new URL(origin)
  const insecure = protocol === 'http:' && !isOwnMachine(hostname) ? ' --insecure' : ''
  return {
    millrace: `echo '${token}' | millrace claim ${user} --url ${origin}${insecure}`,
    // The same key gives the same answer again, if the first one was lost.
    curl: [
      'key=$(openssl rand -hex 16)',
      `curl --retry 8 --retry-all-errors ${origin}/api/v1/claim -H 'Content-Type: application/json' \\`,
      `  -H "Idempotency-Key: $key" -d '${JSON.stringify({ token, user })}'`,
    ].join('\n'),
  }
}
