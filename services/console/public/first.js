// Asks for what the first page of a signed-in person needs while the browser still reads the scripts of the page.
// src/api/firstAnswers.ts takes the answers. A link with #local= signs in first, so it asks afterwards.
const answers = new Map()
const ask = (path) => {
  const answer = fetch(path)
  answers.set(new URL(path, location.origin).href, answer)
  return answer
}
const [, first, broker] = location.pathname.split('/')
if (['', 'b', 'brokers', 'me', 'org'].includes(first) && !location.hash.startsWith('#local=')) {
  ask('/api/v1/me')
    .then(async (answer) => {
      if (!answer.ok || first !== 'b' || !broker) return
      const { organisations } = await answer.clone().json()
      const [own] = organisations
      if (own) await ask(`/api/v1/organisations/${own.id}/brokers/${broker}`)
    })
    // The page takes the same answer, and says what is wrong.
    .catch(() => {})
}
globalThis.firstAnswers = answers
