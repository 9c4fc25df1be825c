// Every page of the console, and each of their tabs, with an address in the world of demo.mjs.

/** `organisation` is a path of the API, `tenant` the name of a broker that somebody made, `admin` where operators are served, `shown`
 * names of what drawers show. */
export function pagesOf({ organisation, tenant, admin, shown = {} }) {
  const org = organisation.replace('/organisations/', '/org/')
  return {
    brokers: '/?all=true',
    'broker-new': '/brokers/new',
    overview: '/b/default',
    'overview-six-hours': '/b/default?range=6h',
    'overview-hour': '/b/default?range=1h',
    'overview-day': '/b/default?range=24h',
    'overview-tenant': `/b/${tenant}?range=7d`,
    connect: '/b/default/connect',
    'connect-tenant': `/b/${tenant}/connect`,
    live: '/b/default/live',
    clients: '/b/default/clients',
    'clients-empty': `/b/${tenant}/clients`,
    client: '/b/default/clients/pump-7',
    'client-trace': '/b/default/clients/pump-7?tab=trace',
    'why-connect': `/b/${tenant}/clients/pump-8`,
    'why-publish': `/b/${tenant}/clients/pump-7?packet=publish`,
    'why-subscribe': `/b/${tenant}/clients/pump-7?packet=subscribe`,
    topics: '/b/default/topics?topic=plant%2Fhall-1%2Fstate',
    'topics-empty': `/b/${tenant}/topics`,
    sessions: '/b/default/sessions',
    session: '/b/default/sessions?session=dashboard-1',
    streams: '/b/default/streams',
    stream: '/b/default/streams?stream=door%2F%2B',
    'stream-shared': '/b/default/streams?stream=%24share%2Fprinters%2Fplant%2F%2B%2Fstate',
    messages: '/b/default/messages',
    // A topic of the traffic: older ones are not among the messages that the server looks at.
    'messages-topic': '/b/default/messages?topic=plant%2Fline-1%2Ftemperature',
    message: `/b/default/messages?topic=door%2F1&at=${shown.message}`,
    'messages-none': `/b/${tenant}/messages?topic=up%2Fpump-7%2Falarm`,
    incidents: `/b/${tenant}/incidents`,
    access: `/b/${tenant}/access`,
    'access-rules': `/b/${tenant}/access?tab=rules`,
    'access-groups': `/b/${tenant}/access?tab=groups`,
    'access-methods': `/b/${tenant}/access?tab=methods`,
    'access-certificates': `/b/${tenant}/access?tab=certificates`,
    'access-tokens': `/b/${tenant}/access?tab=tokens`,
    'access-bans': `/b/${tenant}/access?tab=bans`,
    'access-test': `/b/${tenant}/access?tab=test`,
    'access-credential': `/b/${tenant}/access?edit=pump-7`,
    'access-credential-new': `/b/${tenant}/access?edit=%2B`,
    'access-batch-new': `/b/${tenant}/access?batch=%2B`,
    'access-claim-token-new': `/b/${tenant}/access?claim=%2B`,
    'access-group': `/b/${tenant}/access?tab=groups&edit=pumps`,
    'access-issuer': `/b/${tenant}/access?tab=tokens&edit=own`,
    'access-ca-new': `/b/${tenant}/access?tab=certificates&edit=%2B`,
    'access-ban-new': `/b/${tenant}/access?tab=bans&edit=%2B`,
    'webhook-new': `/b/${tenant}/webhooks?edit=%2B`,
    'webhooks-empty': '/b/default/webhooks',
    'sessions-empty': `/b/${tenant}/sessions`,
    'streams-webhooks': `/b/${tenant}/streams`,
    'incidents-empty': '/b/default/incidents',
    webhooks: `/b/${tenant}/webhooks`,
    webhook: `/b/${tenant}/webhooks?webhook=orders`,
    'webhook-delivery': `/b/${tenant}/webhooks?webhook=billing&delivery=${shown.delivery}`,
    'webhook-letter': `/b/${tenant}/webhooks?webhook=billing&letter=${shown.letter}`,
    usage: `/b/${tenant}/usage`,
    settings: `/b/${tenant}/settings`,
    'org-members': org,
    'org-invitations': `${org}?tab=invitations`,
    'org-tokens': `${org}?tab=tokens`,
    'org-audit': `${org}?tab=audit`,
    'org-usage': `${org}?tab=usage`,
    'org-export': `${org}?tab=export`,
    'org-invite': `${org}?tab=invitations&edit=%2B`,
    'org-token-new': `${org}?tab=tokens&edit=%2B`,
    'org-settings': `${org}?tab=settings`,
    'org-entry': `${org}?tab=audit&entry=${shown.entry}`,
    'org-new': '/org/new',
    account: '/me',
    'account-entry': `/me?entry=${encodeURIComponent(shown.own)}`,
    operator: `${admin}/`,
    'operator-tenants': `${admin}/tenants`,
    'operator-tenant': `${admin}/tenants?tenant=${organisation.replace('/organisations/', '')}`,
    'operator-empty': `${admin}/tenants?search=nobody`,
    'operator-audit': `${admin}/audit`,
    'operator-tenant-audit': `${admin}/audit?tenant=${organisation.replace('/organisations/', '')}`,
    'operator-accounts': `${admin}/accounts`,
    'operator-not-found': `${admin}/nowhere`,
    'not-found': '/b/nowhere',
    'sign-in': '/sign-in',
    'sign-up': '/sign-up#token',
    'forgot-password': '/forgot-password',
    'reset-password': '/reset-password#token=made-up',
    'reset-password-no-link': '/reset-password',
    'confirm-address': '/confirm-address#token=made-up',
    'confirm-address-no-link': '/confirm-address',
    'confirm-address-guest': '/confirm-address#token=made-up',
    'confirm-sign-up': '/confirm#made-up',
    'confirm-sign-up-no-link': '/confirm',
    accept: '/sign-up#made-up',
  }
}

export const WITHOUT_SESSION = new Set([
  'sign-in',
  'sign-up',
  'forgot-password',
  'reset-password',
  'reset-password-no-link',
  'confirm-address-guest',
  'confirm-sign-up',
  'confirm-sign-up-no-link',
])

/** Dialogs without an address: the page behind each, and the way to open it. */
export function dialogsOf({ organisation, tenant }) {
  const org = organisation.replace('/organisations/', '/org/')
  return {
    'ask-broker-delete': { path: `/b/${tenant}/settings`, open: clicks('Delete broker') },
    'ask-broker-suspend': { path: `/b/${tenant}/settings`, open: clicks('Suspend broker') },
    'ask-credential-delete': { path: `/b/${tenant}/access?edit=pump-7`, open: clicks('Delete credential') },
    'ask-disconnect': { path: '/b/default/clients/pump-7', open: clicks('Disconnect') },
    'ask-letters-remove': { path: `/b/${tenant}/webhooks?webhook=billing`, open: clicks('Remove all') },
    'ask-own-access': { path: '/b/default/settings', open: clicks('Use credentials') },
    'ask-org-delete': { path: `${org}?tab=settings`, open: clicks('Delete organisation') },
    'ask-leave': { path: org, open: clicks('Leave') },
    // A new password takes the place of the one before, so that each visit can show one.
    secret: {
      path: `/b/${tenant}/access?edit=backend`,
      open: async (tab) => {
        await tab.getByRole('combobox', { name: 'The old password stays valid' }).click()
        await tab.getByRole('option', { name: 'not at all' }).click()
        await tab.getByRole('button', { name: 'Rotate password' }).click()
        await tab.getByTestId('secret').waitFor()
      },
    },
    'session-over': { path: `/b/${tenant}/webhooks`, open: endsSession },
  }
}

const clicks = (name) => async (tab) => {
  await tab.getByRole('button', { name, exact: true }).first().click()
  await tab.getByRole('dialog').last().getByRole('button').first().waitFor()
}

/** The browser loses its cookie, and has it again for the next page. */
async function endsSession(tab) {
  const context = tab.context()
  const cookies = await context.cookies()
  await context.clearCookies()
  await tab.evaluate(() => window.dispatchEvent(new Event('visibilitychange')))
  await tab.getByRole('dialog', { name: 'Sign in' }).waitFor()
  await context.addCookies(cookies)
}
