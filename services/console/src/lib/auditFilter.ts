import type { AuditFilter } from '../api/organisation'

/** The filter in the address of a page. */
export interface AuditSearch {
  actor?: string | undefined
  action?: string | undefined
  /** Days such as 2026-11-23, or empty. */
  from?: string | undefined
  to?: string | undefined
}

/** The filter of the API. Both days are whole days of the browser's time zone. */
export function filterOf({ actor = '', action = '', from = '', to = '' }: AuditSearch): AuditFilter {
  const filter: AuditFilter = {}
  if (actor.trim()) filter.actor = actor.trim()
  if (action.trim()) filter.action = action.trim()
  const begin = dayOf(from)
  if (begin) filter.from = Math.max(begin.getTime(), 0)
  const end = dayOf(to)
  if (end) filter.to = Math.max(end.setDate(end.getDate() + 1), 0)
  return filter
}

/** Midnight of a day; null while the text is no day. */
function dayOf(text: string): Date | null {
  if (!/^\d{4}-\d{2}-\d{2}$/.test(text)) return null
  const day = new Date(`${text}T00:00:00`)
  return Number.isNaN(day.getTime()) ? null : day
}
