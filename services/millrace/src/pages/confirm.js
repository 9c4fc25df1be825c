// The page of the link that a sign-up mails: its secret stands behind the #, which browsers send nowhere.

const token = location.hash.slice(1)
// So that it does not stay in the history.
history.replaceState(null, '', location.pathname)

const form = document.getElementById('form')
const wrong = document.getElementById('wrong')

form.addEventListener('submit', async (event) => {
  event.preventDefault()
  const button = form.querySelector('button')
  wrong.textContent = ''
  button.disabled = true
  try {
    const answer = await fetch('/api/v1/sign-up/confirm', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ token, password: form.elements.password.value }),
    })
    if (answer.ok) return location.replace('/')
    wrong.textContent = (await answer.json()).detail
    form.elements.password.focus()
  } catch {
    wrong.textContent = 'The server does not answer: try again.'
  } finally {
    button.disabled = false
  }
})
