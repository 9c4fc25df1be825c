import type { Used } from '../api/usage'
import { bytes, si } from '../lib/format'
import type { Column } from './Rows'

/** Table columns for the usage of a broker or a tenant. */
export const usedColumns: Column<{ used: Used }>[] = [
  { key: 'in', header: 'Published', width: '88px', isNumber: true, cell: ({ used }) => si(used.messages_in) },
  {
    key: 'out',
    header: 'Delivered',
    width: '80px',
    isNumber: true,
    cell: ({ used }) => si(used.messages_delivered),
  },
  {
    key: 'bytes',
    header: 'Bytes',
    width: '96px',
    isNumber: true,
    isExtra: true,
    cell: ({ used }) => bytes(used.bytes_in + used.bytes_out),
  },
  {
    key: 'minutes',
    header: 'Session minutes',
    width: '128px',
    isNumber: true,
    isExtra: true,
    cell: ({ used }) => si(used.connected_session_minutes),
  },
]
