// Debian's Chromium, driven by Playwright.

import { join } from 'node:path'
import { chromium } from 'playwright-core'

export const launch = () =>
  chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    headless: true,
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
    ],
  })

/** Signs the browser in with the cookie of a session with the API. */
export async function withSession(context, url, api) {
  const [name, value] = api.cookie.split('=')
  await context.addCookies([{ name, value, url, httpOnly: true, sameSite: 'Lax' }])
}

const KINDS = { css: 'text/css', html: 'text/html', js: 'text/javascript', svg: 'image/svg+xml', woff2: 'font/woff2' }

/** Draws what was built last, in place of what the binary carries: a change is seen without building the server again. */
export async function withBuild(context, folder, url) {
  await context.route(`${url}/**`, async (route) => {
    const { pathname } = new URL(route.request().url())
    if (/^\/(api\/|console\.json)/.test(pathname)) return route.continue()
    const name = /^\/(assets\/|[^/]+\.(js|css|svg)$)/.test(pathname) ? pathname : '/index.html'
    const kind = KINDS[name.split('.').at(-1)]
    await route.fulfill({ path: join(folder, name), contentType: kind })
  })
}
