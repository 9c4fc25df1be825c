/** Whether a host name can only mean the reader's own machine. */
export const isLoopback = (host: string) =>
  host === 'localhost' ||
  host === '::1' ||
  host === '[::1]' ||
  host.endsWith('.localhost') ||
  /^127(\.\d+){3}$/.test(host)

/** Whether a host is an IPv4 or IPv6 address, which has no name in TLS. */
export const isAddress = (host: string) => host.includes(':') || /^\d+(\.\d+){3}$/.test(host)

/** A host as it stands in a URL: IPv6 addresses in brackets. */
export const urlHost = (host: string) => (host.includes(':') ? `[${host}]` : host)

/** Whether a text can be the name or the address of a host. */
export const isHostName = (text: string) =>
  /^[a-z\d]([a-z\d.-]*[a-z\d])?$|^[\da-f:.]*:[\da-f:.]*$/i.test(text)
