// Asks for what the first page needs while the browser still reads the scripts of the page: for the session, or for the sign-in of the
// link that `make run` prints, and then for the brokers. src/api/firstAnswers.ts takes the answers.
const answers = new Map()
const ask = (path, options) => {
  const answer = fetch(path, options)
  answers.set(`${options?.method ?? 'GET'} ${new URL(path, location.origin).href}`, answer)
  return answer
}
const [, first, broker] = location.pathname.split('/')

/** A link to a broker asks for this one; the start page asks for all of them. */
async function askForBrokers(session) {
  const answer = await session
  if (!answer.ok) return
  const { organisations } = await answer.clone().json()
  const [own] = organisations
  if (own && first === 'b' && broker) await ask(`/api/v1/organisations/${own.id}/brokers/${broker}`)
  // As src/api/brokers.ts asks.
  if (first === '')
    await Promise.all(organisations.map(({ id }) => ask(`/api/v1/organisations/${id}/brokers?limit=200`)))
}

function begin() {
  const link = /^#local=(.+)$/.exec(location.hash)?.[1]
  if (link !== undefined) {
    const body = JSON.stringify({ token: decodeURIComponent(link) })
    return ask('/api/v1/sign-in/local', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body,
    })
  }
  return ask('/api/v1/me')
}

if (['', 'b', 'brokers', 'me', 'org'].includes(first)) {
  try {
    // The page takes the same answers, and says what is wrong.
    askForBrokers(begin()).catch(() => {})
  } catch {
    // A link with a broken token. The page says so.
  }
}
globalThis.firstAnswers = answers
