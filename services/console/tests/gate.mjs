// A TCP proxy on loopback between the browser and the server. It changes no byte: it passes connections on, holds their answers back,
// or closes them, as a network or a server that ends does.

import { once } from 'node:events'
import { connect, createServer } from 'node:net'

const REQUEST = /^[A-Z]+ (\S+) HTTP\/1\.1\r\n/

/** A gate before a port of loopback. `gate.rule(pathname, searchParams)` says of each request: "pass", "hold" or "cut". */
export class Gate {
  rule = () => 'pass'
  /** Requests that the rule held or cut. */
  stopped = 0
  #held = new Set()
  #open = new Set()

  static async before(target) {
    const gate = new Gate()
    const { port } = new URL(target)
    const listener = createServer((browser) => gate.#accept(browser, Number(port)))
    listener.listen(0, '127.0.0.1')
    await once(listener, 'listening')
    gate.url = `http://127.0.0.1:${listener.address().port}`
    gate.close = () => {
      listener.close()
      gate.#cut(gate.#open)
    }
    return gate
  }

  /** Nothing answers, as when the server is gone. */
  down() {
    this.rule = () => 'cut'
    this.#cut(this.#open)
  }

  /** From now on everything passes; what was held back continues. */
  pass() {
    this.rule = () => 'pass'
    for (const { letGo } of this.#held) letGo()
    this.#held.clear()
  }

  /** Requests of these paths end without an answer. So do those that were held back, whatever their path. */
  cut(isCut) {
    this.rule = (pathname) => (isCut(pathname) ? 'cut' : 'pass')
    this.endHeld()
  }

  endHeld() {
    for (const { end } of this.#held) end()
    this.#held.clear()
  }

  hold(isHeld) {
    this.rule = (pathname) => (isHeld(pathname) ? 'hold' : 'pass')
  }

  #cut(sockets) {
    for (const socket of [...sockets]) socket.destroy()
  }

  #accept(browser, port) {
    const server = connect({ port, host: '127.0.0.1', noDelay: true })
    browser.setNoDelay(true)
    this.#open.add(browser)
    /** Parts of the answer that wait; null: none has to. */
    let waiting = null
    let isOver = false
    const held = {
      letGo: () => {
        for (const part of waiting ?? []) browser.write(part)
        waiting = null
        if (isOver) browser.end()
      },
      end: () => browser.destroy(),
    }
    browser.on('data', (data) => {
      // A browser sends the next request of a connection after the answer to the one before.
      const target = REQUEST.exec(data.subarray(0, 4096).toString('latin1'))?.[1]
      if (target) {
        const { pathname, searchParams } = new URL(target, 'http://gate')
        const what = this.rule(pathname, searchParams)
        if (what !== 'pass') this.stopped += 1
        if (what === 'cut') return browser.destroy()
        if (what === 'hold') {
          waiting = []
          this.#held.add(held)
        }
      }
      server.write(data)
    })
    server.on('data', (data) => {
      if (waiting) waiting.push(data)
      else browser.write(data)
    })
    // A close follows an error.
    for (const socket of [browser, server]) socket.on('error', () => {})
    server.on('close', () => {
      isOver = true
      if (!waiting) browser.end()
    })
    browser.on('close', () => {
      server.destroy()
      this.#held.delete(held)
      this.#open.delete(browser)
    })
  }
}
