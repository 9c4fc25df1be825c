import { IconActivity, IconHistory, IconKey, IconUsers } from '@tabler/icons-react'

/** Pages of operators, in the order of the navigation; `key` follows "g" on the keyboard. */
export const PAGES: { to: string; label: string; key: string; icon: typeof IconActivity }[] = [
  { to: '/', label: 'Overview', key: 'o', icon: IconActivity },
  { to: '/tenants', label: 'Tenants', key: 't', icon: IconUsers },
  { to: '/audit', label: 'Audit log', key: 'l', icon: IconHistory },
  { to: '/accounts', label: 'Accounts', key: 'a', icon: IconKey },
]
