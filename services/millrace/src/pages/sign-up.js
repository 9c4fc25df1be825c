// The page that a link of the log or an invitation opens: its secret stands behind the #, which browsers send nowhere.

const byId = (id) => document.getElementById(id)
const token = location.hash.slice(1)
// So that it does not stay in the history.
history.replaceState(null, '', location.pathname)

const form = byId('form')
if (!token) byId('lead').textContent = 'You need a link: the one in the server\'s log, or an invitation. Without one an account is made only where anybody may.'

fetch('/api/v1/sign-in/ways').then((answer) => answer.json()).then(({ provider }) => {
  if (!provider) return
  for (const id of ['provider-name', 'provider-again']) byId(id).textContent = provider.name
  if (token) byId('provider-link').search = new URLSearchParams({ token })
  byId('provider').hidden = false
})

form.addEventListener('submit', async (event) => {
  event.preventDefault()
  const button = form.querySelector('button')
  const said = Object.fromEntries([...new FormData(form)].filter(([, value]) => value !== ''))
  if (token) said.token = token
  byId('wrong').textContent = ''
  button.disabled = true
  try {
    const answer = await fetch('/api/v1/sign-up', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ email: '', password: '', name: '', ...said }),
    })
    const body = await answer.json()
    if (!answer.ok) return refused(body)
    if (answer.status === 202) return asked(body)
    welcome(body)
  } catch {
    byId('wrong').textContent = 'The server does not answer: try again.'
  } finally {
    button.disabled = false
  }
})

/** Says what is wrong, at the first field that is. */
function refused({ detail, fields = [] }) {
  const [first] = fields
  const input = first && form.elements[first.field]
  for (const element of form.elements) element.removeAttribute('aria-invalid')
  if (input) {
    input.setAttribute('aria-invalid', 'true')
    input.focus()
  }
  const label = input?.labels[0]?.firstChild.textContent.split(',')[0].trim()
  byId('wrong').textContent = label ? `${label}: ${first.detail}` : detail
}

/** A mail is on its way. */
function asked({ email }) {
  for (const id of ['with-password', 'provider', 'lead']) byId(id).hidden = true
  byId('asked').textContent = `Open the link that was mailed to ${email}.`
  byId('asked').hidden = false
}

function welcome({ user, organisations: [organisation] }) {
  for (const id of ['with-password', 'provider', 'lead']) byId(id).hidden = true
  byId('done-title').textContent = `You are signed in, and belong to ${organisation?.name ?? 'no organisation'}`
  byId('who').textContent = user.email
  byId('commands').textContent = [
    `millrace login --url ${location.origin}`,
    'millrace brokers create "Plant 7"',
    'millrace brokers list',
  ].join('\n')
  byId('done').hidden = false
  byId('done').focus()
}
