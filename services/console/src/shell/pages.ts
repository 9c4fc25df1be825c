// The pages of a broker, for navigation, breadcrumb, palette and shortcuts. router.tsx has a route for each path.

import {
  IconActivity,
  IconAlertTriangle,
  IconBinaryTree2,
  IconBroadcast,
  IconCoins,
  IconDevices,
  IconInbox,
  IconKey,
  IconMailSearch,
  IconPlugConnected,
  IconSettings,
  IconStack2,
  IconWebhook,
} from '@tabler/icons-react'

/** Pages of a broker, in the order of the navigation; `key` follows "g" on the keyboard. */
export const PAGES = [
  { path: '/', label: 'Overview', key: 'o', icon: IconActivity, group: 'broker' },
  { path: '/connect', label: 'Connect', key: 'n', icon: IconPlugConnected, group: 'broker' },
  { path: '/live', label: 'Live', key: 'l', icon: IconBroadcast, group: 'look' },
  { path: '/clients', label: 'Clients', key: 'c', icon: IconDevices, group: 'look' },
  { path: '/topics', label: 'Topics', key: 't', icon: IconBinaryTree2, group: 'look' },
  { path: '/sessions', label: 'Sessions', key: 's', icon: IconInbox, group: 'look' },
  { path: '/streams', label: 'Streams', key: 'r', icon: IconStack2, group: 'look' },
  { path: '/messages', label: 'Messages', key: 'm', icon: IconMailSearch, group: 'look' },
  { path: '/incidents', label: 'Incidents', key: 'i', icon: IconAlertTriangle, group: 'look' },
  { path: '/access', label: 'Access', key: 'a', icon: IconKey, group: 'manage' },
  { path: '/webhooks', label: 'Webhooks', key: 'w', icon: IconWebhook, group: 'manage' },
  { path: '/usage', label: 'Usage', key: 'u', icon: IconCoins, group: 'manage' },
  { path: '/settings', label: 'Settings', key: 'e', icon: IconSettings, group: 'manage' },
] as const

export const GROUPS = [
  { group: 'broker', label: 'Broker' },
  { group: 'look', label: 'Look inside' },
  { group: 'manage', label: 'Manage' },
] as const
