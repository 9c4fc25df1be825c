// Actions of the command palette that depend on a role: the palette offers an action where a page does.

import { may, type Role, type Session } from '../api/session'

const ACCESS = [
  ['credentials', 'Credentials'],
  ['groups', 'Groups'],
  ['rules', 'Rules of all clients'],
  ['test', 'Access tester'],
  ['certificates', 'Client CAs'],
  ['tokens', 'JWT issuers'],
  ['bans', 'Bans'],
  ['methods', 'Authentication'],
] as const

export interface AccessOffer {
  id: string
  label: string
  tab: string
  /** The form that opens; undefined: only the tab. */
  edit?: string
}

/** Tabs of the access page, and the form of a new credential. `role` is undefined until the broker is loaded. */
export function accessOffers(role: Role | undefined): AccessOffer[] {
  const tabs = ACCESS.map(([tab, label]): AccessOffer => ({ id: `access ${tab}`, label, tab }))
  if (!role || !may(role, 'access:write')) return tabs
  return [...tabs, { id: 'create credential', label: 'Create credential', tab: 'credentials', edit: '+' }]
}

/** Whether somebody may create a broker in one of their organisations. */
export const mayCreateBroker = (me: Pick<Session, 'organisations'> | null | undefined) =>
  me?.organisations.some(({ role }) => may(role, 'brokers:write')) ?? false
