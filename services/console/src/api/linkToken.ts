// The secret of a mailed link. Links carry it in the fragment, which browsers send to no server. This module removes it
// from the address bar and the history, where others could read it.

const PAGES = new Set(['/reset-password', '/confirm-address'])

/** The fragment of its link is the token itself. */
const CONFIRM_SIGN_UP = '/confirm'

/** Reads the value of "#token=" in the address, for the pages that a mailed link opens. */
export function tokenOf(pathname: string, hash: string): string | null {
  if (pathname === CONFIRM_SIGN_UP) return hash.slice(1) || null
  if (!PAGES.has(pathname)) return null
  return new URLSearchParams(hash.slice(1)).get('token') || null
}

let token: string | null = null

/** Takes the token out of the address bar. It runs before all other code of the page. */
export function takeLinkToken() {
  const found = tokenOf(location.pathname, location.hash)
  if (found === null) return
  token = found
  history.replaceState(history.state, '', location.pathname)
}

/** Whether an address is that of a link with a secret: of a mail, of an invitation, or of the log of the server. */
export const isLink = (pathname: string, hash: string) =>
  tokenOf(pathname, hash) !== null ||
  (pathname === '/sign-up' && hash.length > 1) ||
  hash.startsWith('#local=')

/** A link that is pasted into a tab with the same page changes only the fragment, and the browser loads nothing. */
export function reloadForLinks() {
  addEventListener('hashchange', () => {
    if (isLink(location.pathname, location.hash)) location.reload()
  })
}

/** The token of the link that opened this page. It survives signing in, but is lost at a reload. */
export const linkToken = () => token
