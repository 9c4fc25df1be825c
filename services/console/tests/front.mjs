// Serves a build of the console from disk before a real server, so that a changed page needs no new binary.
// Passes all requests but those of the page and its files on to the server. While the server is down, connections end as they
// would without this proxy.

import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { createServer, request } from 'node:http'
import { extname, join } from 'node:path'

const NONCE = '__CSP_NONCE__'
const FOREVER = 'public, max-age=31536000, immutable'
const KINDS = {
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.woff2': 'font/woff2',
}

/** The policy of services/millrace/src/console.rs. */
const policy = (nonce, ws) =>
  `default-src 'none'; script-src 'self'; style-src 'self' 'nonce-${nonce}'; font-src 'self'; img-src 'self' data:; ` +
  `connect-src 'self' ws://127.0.0.1:${ws}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`

/** A browser goes to the API, too, when a provider sends it back. */
const isPage = ({ method, headers }, pathname) =>
  method === 'GET' &&
  headers.accept?.includes('text/html') &&
  !/^\/(api|v1|metrics|healthz)(\/|$)/.test(pathname)

/** `folder` is dist/app. `ports` are those of the server: `http` answers what this does not, `ws` is what the page connects to.
 * `page` is operator.html before an admin port. */
export async function front(folder, ports, page = 'index.html') {
  const listener = createServer((incoming, outgoing) => {
    const { pathname } = new URL(incoming.url, 'http://console')
    const file = join(folder, pathname)
    const kind = KINDS[extname(pathname)]
    if (kind && file.startsWith(folder) && existsSync(file)) {
      // As the server does: names below assets have the hash of their content.
      const cached = pathname.startsWith('/assets/') && { 'cache-control': FOREVER }
      const isPacked = incoming.headers['accept-encoding']?.includes('br') && existsSync(`${file}.br`)
      const packed = isPacked && { 'content-encoding': 'br' }
      outgoing
        .writeHead(200, { 'content-type': kind, ...cached, ...packed })
        .end(readFileSync(isPacked ? `${file}.br` : file))
    } else if (isPage(incoming, pathname)) {
      const nonce = randomBytes(16).toString('base64').replaceAll('=', '')
      const headers = {
        'content-type': 'text/html; charset=utf-8',
        'content-security-policy': policy(nonce, ports.ws),
        'cache-control': 'no-store',
      }
      const text = readFileSync(join(folder, page), 'utf8').replaceAll(NONCE, nonce)
      outgoing.writeHead(200, headers).end(text)
    } else forward(incoming, outgoing, ports.http)
  })
  listener.listen(0, '127.0.0.1')
  await once(listener, 'listening')
  const stop = () => {
    listener.closeAllConnections()
    listener.close()
  }
  return { url: `http://127.0.0.1:${listener.address().port}`, stop }
}

function forward(incoming, outgoing, port) {
  const { method, url, headers } = incoming
  const onward = request({ host: '127.0.0.1', port, method, path: url, headers, agent: false }, (answer) => {
    outgoing.writeHead(answer.statusCode, answer.headers)
    // A stream of events is open before its first event.
    outgoing.flushHeaders()
    answer.pipe(outgoing)
    answer.on('error', () => outgoing.destroy())
  })
  onward.on('error', () => outgoing.destroy())
  // A stream of events that the browser leaves is left here too.
  outgoing.on('close', () => onward.destroy())
  incoming.pipe(onward)
}
