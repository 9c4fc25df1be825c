// Names the scripts of a broker's overview and the font of its text in the page, so that the browser asks for them together with the
// first script. Otherwise it would find them only when it runs that script.

import type { HtmlTagDescriptor, Plugin } from 'vite'
import { scriptsOf } from './budget.ts'
import { FIRST_PAGE } from './firstPage.ts'

/** The font that is preloaded: otherwise the whole page would be laid out again when it arrives. */
const FONT = /inter-latin-wght-normal-[^/]*\.woff2$/

const link = (attrs: HtmlTagDescriptor['attrs']): HtmlTagDescriptor => ({
  tag: 'link',
  attrs,
  injectTo: 'head',
})

export const preload: Plugin = {
  name: 'preload',
  apply: 'build',
  transformIndexHtml: {
    order: 'post',
    handler(_, { bundle, filename }) {
      if (!bundle || !filename.endsWith('index.html')) return
      const own = scriptsOf(bundle as never, ['src/main.tsx'])
      const needed = scriptsOf(bundle as never, FIRST_PAGE)
      // A page that shares a file with others is opened by a small file of its own.
      for (const [name, chunk] of Object.entries(bundle)) {
        if (chunk.type === 'chunk' && FIRST_PAGE.some((module) => chunk.facadeModuleId?.endsWith(module)))
          needed.add(name)
      }
      const fonts = Object.keys(bundle).filter((name) => FONT.test(name))
      if (fonts.length !== 1) throw new Error(`the build has ${fonts.length} fonts ${FONT}, not one`)
      return [
        ...[...needed]
          .filter((name) => !own.has(name))
          .map((name) => link({ rel: 'modulepreload', href: `/${name}` })),
        ...fonts.map((name) =>
          link({ rel: 'preload', as: 'font', type: 'font/woff2', href: `/${name}`, crossorigin: true }),
        ),
      ]
    },
  },
}
