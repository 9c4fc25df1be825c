import { expect, test } from 'vitest'
import { problemOf } from './problem'

const answer = (status: number, body: string, type = 'application/problem+json') =>
  problemOf(new Response(body, { status, headers: { 'content-type': type, 'x-request-id': 'r-1' } }))

test('a refusal of the API has its sentence, its fields and the id of the request', async () => {
  const body = { status: 422, detail: 'a field is wrong', fields: [{ field: 'name', detail: 'is taken' }] }
  expect(await answer(422, JSON.stringify(body))).toMatchObject({
    status: 422,
    message: 'A field is wrong.',
    fields: { name: 'Is taken.' },
    requestId: 'r-1',
    isOffline: false,
  })
})

test.each([502, 503, 504])(
  'a proxy that answers %i without the server means that the server is away',
  async (status) => {
    expect(await answer(status, '<h1>Bad gateway</h1>', 'text/html')).toMatchObject({ isOffline: true })
  },
)

test('a server that is busy says so itself, and is not away', async () => {
  const body = { status: 503, detail: 'the store does not answer' }
  expect(await answer(503, JSON.stringify(body))).toMatchObject({ status: 503, isOffline: false })
})

test.each([
  [429, undefined, true],
  [429, '2', true],
  [429, '60', false],
  [503, '2', false],
])('%i with Retry-After %s: a page waits for it is %s', async (status, after, isBusy) => {
  const body = JSON.stringify({ status, detail: 'one list at once' })
  const headers = { 'content-type': 'application/problem+json', ...(after && { 'retry-after': after }) }
  expect(await problemOf(new Response(body, { status, headers }))).toMatchObject({ isBusy })
})
