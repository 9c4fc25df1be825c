import type { Role } from '../api/session'

export const ROLES: { value: Role; label: string; description: string }[] = [
  { value: 'owner', label: 'Owner', description: 'May do everything.' },
  { value: 'operator', label: 'Operator', description: 'May do everything with brokers.' },
  { value: 'viewer', label: 'Viewer', description: 'Sees everything, changes nothing.' },
]

export const roleText = (role: Role) => ROLES.find(({ value }) => value === role)?.label ?? role
