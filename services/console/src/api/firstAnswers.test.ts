import './pageAddress.testing'
import { afterEach, expect, test, vi } from 'vitest'
import { api } from './client'

const AT = 'http://console.test/api/v1'

afterEach(() => {
  vi.unstubAllGlobals()
  globalThis.firstAnswers = undefined
})

/** A server whose n-th answer has the name `answer n`. Returns the list of requests. */
function server() {
  const asked: string[] = []
  vi.stubGlobal('fetch', async (request: Request) => {
    asked.push(`${request.method} ${new URL(request.url).pathname}`)
    return Response.json({ user: { name: `answer ${asked.length}` } })
  })
  return asked
}

/** Answers to the requests that public/first.js sends before the app runs. */
const early = () => {
  const answer = (name: string) => Promise.resolve(Response.json({ user: { name } }))
  globalThis.firstAnswers = new Map([
    [`GET ${AT}/me`, answer('early')],
    [`POST ${AT}/sign-in/local`, answer('signed in')],
  ])
}
const nameOf = async () => (await api.GET('/me')).data?.user.name

test('an answer that is under way is taken once', async () => {
  early()
  const asked = server()
  expect(await nameOf()).toBe('early')
  expect(await nameOf()).toBe('answer 1')
  expect(asked).toEqual(['GET /api/v1/me'])
})

test('after a sign-out, an answer from before it does not count', async () => {
  early()
  const asked = server()
  await api.POST('/sign-out')
  expect(await nameOf()).toBe('answer 2')
  expect(asked).toEqual(['POST /api/v1/sign-out', 'GET /api/v1/me'])
})

test('the sign-in of a link is sent once, and answers that were asked for after it count', async () => {
  early()
  const asked = server()
  const signedIn = await api.POST('/sign-in/local', { body: { token: 'of the link' } })
  expect(signedIn.data?.user.name).toBe('signed in')
  expect(await nameOf()).toBe('early')
  expect(asked).toEqual([])
})
