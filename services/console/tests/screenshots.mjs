// Draws every page, light and dark, wide and narrow.
//
//   MILLRACE=target/release/millrace node tests/screenshots.mjs FOLDER [page...]
//
// ONLY=390-dark draws only these sizes and schemes; FULL=1 draws whole pages, not what fits into the window.

import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { launch, withSession } from './browser.mjs'
import { demo } from './demo.mjs'

const [folder = 'target/screenshots', ...wanted] = process.argv.slice(2)
const SIZES = [
  { name: '1440', width: 1440, height: 900 },
  { name: '390', width: 390, height: 844 },
]
const SCHEMES = ['light', 'dark']
const SETTLE_MS = Number(process.env.SETTLE_MS ?? 1500)

const world = await demo()
const { server, api, organisation } = world
const base = server.url
const { items } = await api.get(`${organisation}/brokers`)
const other = items.find(({ name }) => name !== 'default').name
const org = organisation.replace('/organisations/', '/org/')

const PAGES = {
  brokers: '/?all=true',
  'broker-new': '/brokers/new',
  overview: '/b/default',
  'overview-day': '/b/default?range=24h',
  'overview-tenant': `/b/${other}?range=7d`,
  connect: '/b/default/connect',
  'connect-tenant': `/b/${other}/connect`,
  live: '/b/default/live',
  clients: '/b/default/clients',
  'clients-empty': `/b/${other}/clients`,
  client: '/b/default/clients/pump-7',
  'why-connect': `/b/${other}/clients/pump-8`,
  'why-publish': `/b/${other}/clients/pump-7?packet=publish`,
  'why-subscribe': `/b/${other}/clients/pump-7?packet=subscribe`,
  topics: '/b/default/topics?topic=plant%2Fhall-1%2Fstate',
  'topics-empty': `/b/${other}/topics`,
  sessions: '/b/default/sessions',
  session: '/b/default/sessions?session=dashboard-1',
  incidents: `/b/${other}/incidents`,
  access: `/b/${other}/access`,
  'access-rules': `/b/${other}/access?tab=rules`,
  'access-groups': `/b/${other}/access?tab=groups`,
  'access-methods': `/b/${other}/access?tab=methods`,
  'access-certificates': `/b/${other}/access?tab=certificates`,
  'access-tokens': `/b/${other}/access?tab=tokens`,
  'access-bans': `/b/${other}/access?tab=bans`,
  'access-test': `/b/${other}/access?tab=test`,
  webhooks: `/b/${other}/webhooks`,
  webhook: `/b/${other}/webhooks?webhook=orders`,
  usage: `/b/${other}/usage`,
  settings: `/b/${other}/settings`,
  'org-members': org,
  'org-invitations': `${org}?tab=invitations`,
  'org-tokens': `${org}?tab=tokens`,
  'org-audit': `${org}?tab=audit`,
  'org-usage': `${org}?tab=usage`,
  'org-settings': `${org}?tab=settings`,
  account: '/me',
  operator: '/operator',
  'not-found': '/b/nowhere',
  'sign-in': '/sign-in',
  'sign-up': '/sign-up#token',
}
const WITHOUT_SESSION = new Set(['sign-in', 'sign-up'])

mkdirSync(folder, { recursive: true })
const browser = await launch()
try {
  for (const scheme of SCHEMES) {
    for (const { name: size, width, height } of SIZES) {
      if (process.env.ONLY && !process.env.ONLY.split(',').includes(`${size}-${scheme}`)) continue
      const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme })
      const guest = await browser.newContext({ viewport: { width, height }, colorScheme: scheme })
      await withSession(context, base, api)
      for (const [page, path] of Object.entries(PAGES)) {
        if (wanted.length > 0 && !wanted.includes(page)) continue
        const tab = await (WITHOUT_SESSION.has(page) ? guest : context).newPage()
        tab.on('pageerror', (error) => console.log(`${page}: ${error}`))
        await tab.goto(`${base}${path}`)
        await tab.waitForTimeout(SETTLE_MS)
        await tab.screenshot({
          fullPage: process.env.FULL === '1',
          path: join(folder, `${page}-${size}-${scheme}.png`),
        })
        await tab.close()
      }
      await context.close()
      await guest.close()
    }
  }
} finally {
  await browser.close()
  await world.stop()
}
