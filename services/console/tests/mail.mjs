// A mail server that keeps the mails it gets: as much of SMTP (RFC 5321) as one sender needs.

import { once } from 'node:events'
import { createServer } from 'node:net'
import { createInterface } from 'node:readline'
import { until } from './server.mjs'

export class MailServer {
  mails = []

  static async start() {
    const mail = new MailServer()
    mail.listener = createServer((socket) => mail.#serve(socket)).listen(0, '127.0.0.1')
    await once(mail.listener, 'listening')
    mail.port = mail.listener.address().port
    return mail
  }

  #serve(socket) {
    const say = (line) => socket.write(`${line}\r\n`)
    let to = ''
    let text = null
    socket.on('error', () => socket.destroy())
    createInterface({ input: socket }).on('line', (line) => {
      if (text !== null) {
        if (line !== '.') return text.push(line)
        this.mails.push({ to, text: decoded(text.join('\n')) })
        text = null
        return say('250 kept')
      }
      const [verb] = line.toUpperCase().split(/[ :]/, 1)
      if (verb === 'EHLO' || verb === 'HELO') return say('250 localhost')
      if (verb === 'RCPT') to = /<(.*)>/.exec(line)?.[1] ?? ''
      if (verb === 'DATA') {
        text = []
        return say('354 go on')
      }
      if (verb === 'QUIT') return socket.end('221 bye\r\n')
      say('250 ok')
    })
    say('220 localhost')
  }

  /** The link to a page in a mail to somebody. */
  async link(to, page) {
    const pattern = new RegExp(`https?://\\S+${page}#\\S+`)
    return until(`a mail to ${to} with a link to ${page}`, () =>
      this.mails
        .filter((mail) => mail.to === to)
        .map(({ text }) => pattern.exec(text)?.[0])
        .findLast(Boolean),
    )
  }

  stop() {
    this.listener.close()
  }
}

/** Undoes quoted-printable (RFC 2045, 6.7), which senders use for long lines. */
const decoded = (text) =>
  /^content-transfer-encoding: *quoted-printable/im.test(text)
    ? text
        .replace(/=\n/g, '')
        .replace(/=([0-9A-F]{2})/g, (_, hex) => String.fromCharCode(Number.parseInt(hex, 16)))
    : text
