import type { AnyRouter } from '@tanstack/react-router'

/** The first page is done by then on a slow line too. */
const AFTER_MS = 5_000

/** Loads the scripts of all pages while the browser is idle: pages open at once, and also while the server is unreachable. */
export function preloadPages(router: AnyRouter): () => void {
  const load = () => {
    for (const route of Object.values(router.routesById)) {
      // The page is asked for again when it is opened.
      Promise.resolve(router.loadRouteChunk(route)).catch(() => {})
    }
    import('./SessionOver').catch(() => {})
  }
  const timer = setTimeout(() => requestIdleCallback(load), AFTER_MS)
  return () => clearTimeout(timer)
}
