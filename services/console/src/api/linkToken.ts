// The secret of a mailed link. A fragment never reaches a server; the address bar, the history and what reads them lose it here.

const PAGES = new Set(['/reset-password', '/confirm-address'])

/** What stands behind "#token=" in an address, for the pages that such a link opens. */
export function tokenOf(pathname: string, hash: string): string | null {
  if (!PAGES.has(pathname)) return null
  return new URLSearchParams(hash.slice(1)).get('token') || null
}

let token: string | null = null

/** Takes the token out of the address bar. Called before anything else of the page runs. */
export function takeLinkToken() {
  const found = tokenOf(location.pathname, location.hash)
  if (found === null) return
  token = found
  history.replaceState(history.state, '', location.pathname)
}

/** The token of the link that opened this page: it survives the way over the sign-in, and no reload. */
export const linkToken = () => token
