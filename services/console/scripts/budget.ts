// Fails the build when the files of the first page exceed their budget.

import { gzipSync } from 'node:zlib'
import type { Plugin } from 'vite'
import { FIRST_PAGE, OPERATOR_PAGE } from './firstPage.ts'

const GZIPPED_BYTES_MAX = 265_000

interface Chunk {
  type: string
  code?: string
  imports?: string[]
  moduleIds?: string[]
}

/** Names of the scripts that `modules` need. */
export function scriptsOf(bundle: Record<string, Chunk>, modules: readonly string[]): Set<string> {
  const needed = new Set<string>()
  const add = (name: string) => {
    if (needed.has(name)) return
    needed.add(name)
    for (const other of bundle[name]?.imports ?? []) add(other)
  }
  for (const module of modules) {
    const found = Object.entries(bundle).find(([, { moduleIds = [] }]) =>
      moduleIds.some((id) => id.endsWith(`/${module}`)),
    )
    if (!found) throw new Error(`the build has no ${module}: is it still part of the first page?`)
    add(found[0])
  }
  return needed
}

/** Gzipped bytes of scripts that `modules` need. */
export function scriptBytes(bundle: Record<string, Chunk>, modules: readonly string[]): number {
  const needed = scriptsOf(bundle, modules)
  return [...needed].reduce((sum, name) => sum + gzipSync(bundle[name]?.code ?? '').length, 0)
}

export const budget: Plugin = {
  name: 'budget',
  apply: 'build',
  generateBundle(_, bundle) {
    for (const [who, modules] of Object.entries({ tenants: FIRST_PAGE, operators: OPERATOR_PAGE })) {
      const bytes = scriptBytes(bundle as unknown as Record<string, Chunk>, modules)
      const said = `${Math.round(bytes / 1000)} kB of gzipped script on the first page of ${who}`
      if (bytes > GZIPPED_BYTES_MAX) this.error(`${said}: the budget is ${GZIPPED_BYTES_MAX / 1000} kB`)
      this.info(said)
    }
  },
}
