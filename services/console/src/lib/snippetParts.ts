// Parts that the snippets of all languages share.

export interface Target {
  host: string
  port: number
  tls: boolean
  wsUrl: string | null
  /** Empty: clients need no user name. */
  user: string
  secret: string
  clientId: string
  /** The authority that a client must trust; null: a client trusts it already. */
  caPem: string | null
}

export const TOPIC = 'hello/world'
/** The page downloads `caPem` under this name. */
export const CA_FILE = 'millrace-ca.pem'

// Double-quoted strings of C, Go, Java, JavaScript, Python, Rust and YAML agree on JSON's escapes.
export const quoted = (text: string) => JSON.stringify(text)
export const joined = (lines: (string | false | null)[]) =>
  lines.filter((line) => line !== false && line !== null).join('\n')
export const hasOwnCa = ({ tls, caPem }: Target) => tls && caPem !== null
export const scheme = (target: Target) => (target.tls ? 'mqtts' : 'mqtt')
export const authority = ({ host, port }: Target) => `${host.includes(':') ? `[${host}]` : host}:${port}`
