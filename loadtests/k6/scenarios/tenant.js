// A tenant of a Millrace with an open sign-up (--sign-up anybody), by its HTTP API.

import http from 'k6/http'

const api = `${__ENV.MILLRACE_HTTP || 'http://127.0.0.1:8080'}/api/v1`
const scopes = ['brokers:read', 'brokers:write', 'access:read', 'access:write', 'clients:read']

/**
 * Sends JSON and returns the answer. name is the call as metrics know it, because a path with the names of brokers in it
 * would be a series of its own for each.
 */
export function ask(method, path, { body, headers, jar, name = path, expected = 200 } = {}) {
  const answer = http.request(method, `${api}${path}`, body === undefined ? null : JSON.stringify(body), {
    headers: Object.assign({ 'Content-Type': 'application/json', 'If-Match': '*' }, headers),
    jar: jar || new http.CookieJar(),
    tags: { name: `${method} ${name}` },
    responseCallback: http.expectedStatuses(expected),
  })
  if (answer.status !== expected) throw new Error(`${method} ${path}: ${answer.status} ${answer.error} ${answer.body}`)
  return answer.body ? answer.json() : undefined
}

/** Signs somebody up, and returns the path of their organisation and the headers that authenticate a program. */
export function tenant(name) {
  const jar = new http.CookieJar()
  const email = `${name}-${Date.now()}-${Math.floor(Math.random() * 1e9)}@example.org`
  const signUp = { email, password: 'a sentence for nobody', name }
  const account = ask('POST', '/sign-up', { body: signUp, jar, expected: 201 })
  const path = `/organisations/${account.organisations[0].id}`
  const token = ask('POST', `${path}/tokens`, {
    body: { name: 'load test', scopes }, headers: { 'X-CSRF-Token': account.csrf_token }, jar, name: 'tokens', expected: 201,
  })
  return { path, headers: { Authorization: `Bearer ${token.secret}` } }
}

/** Makes a broker with one credential, and returns its name and what a client of it needs to connect without a gateway. */
export function broker({ path, headers }, { display = 'load test', user = 'load', limits } = {}) {
  const made = ask('POST', `${path}/brokers`, { body: { display_name: display }, headers, name: 'brokers', expected: 201 })
  const own = `${path}/brokers/${made.name}`
  const { secret } = ask('POST', `${own}/credentials`, {
    body: { user, rules: [{ effect: 'allow', action: 'all', filter: '#' }] }, headers, name: 'credentials', expected: 201,
  })
  if (limits) ask('PATCH', own, { body: { limits }, headers, name: 'broker' })
  return { path: own, login: { username: `${made.name}/${user}`, password: secret } }
}
