// Gives unit tests the address of a page, which the paths of the API are relative to. A test imports this file before the
// modules that it tests, because the client of the API takes `Request` when it is imported.

const OfNode = globalThis.Request

globalThis.Request = class extends OfNode {
  constructor(path: string | URL | Request, init?: RequestInit) {
    super(path instanceof Request ? path : new URL(path, 'http://console.test'), init)
  }
}
