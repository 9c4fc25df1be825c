// Names the scripts of a broker's overview in the page, so that the browser asks for them together with the first one.
// Without it the browser finds them only after it has run the first one.

import type { HtmlTagDescriptor, Plugin } from 'vite'
import { scriptsOf } from './budget.ts'
import { FIRST_PAGE } from './firstPage.ts'

/** Drawn after the first paint. */
const LATER = 'src/charts/Plot.tsx'

export const preload: Plugin = {
  name: 'preload',
  apply: 'build',
  transformIndexHtml: {
    order: 'post',
    handler(_, { bundle, filename }) {
      if (!bundle || !filename.endsWith('index.html')) return
      const own = scriptsOf(bundle as never, ['src/main.tsx'])
      const needed = scriptsOf(
        bundle as never,
        FIRST_PAGE.filter((module) => module !== LATER),
      )
      return [...needed]
        .filter((name) => !own.has(name))
        .map(
          (name): HtmlTagDescriptor => ({
            tag: 'link',
            attrs: { rel: 'modulepreload', href: `/${name}` },
            injectTo: 'head',
          }),
        )
    },
  },
}
