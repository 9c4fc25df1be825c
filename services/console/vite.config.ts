import react from '@vitejs/plugin-react'
import type { Plugin } from 'vite'
import { defineConfig } from 'vitest/config'
import { budget } from './scripts/budget.ts'
import { BOTH_PAGES, FORMS, OVERVIEW } from './scripts/firstPage.ts'
import { preload } from './scripts/preload.ts'

// Builds the console, serves it for development (`npm run dev`), and runs its unit tests.

// The servers behind `npm run dev`: tenants' API and operators' API.
const server = process.env.MILLRACE_URL ?? 'http://127.0.0.1:8080'
const operators = process.env.MILLRACE_ADMIN_URL ?? 'http://127.0.0.1:8090'

/** Serves /console.json, in which the server names its listeners, for the server at MILLRACE_URL. */
const listeners: Plugin = {
  name: 'listeners',
  configureServer({ middlewares }) {
    middlewares.use('/console.json', (_, response) => {
      const { MILLRACE_MQTT = '127.0.0.1:1883', MILLRACE_WS = '127.0.0.1:8083' } = process.env
      response.setHeader('content-type', 'application/json')
      response.end(JSON.stringify({ mqtt: [MILLRACE_MQTT], ws: [MILLRACE_WS], version: 'dev' }))
    })
  },
}

// Components that many pages need, but not the first page, so they stay out of the file that it loads.
const LATER =
  /core\/esm\/components\/(Checkbox|Combobox|Drawer|Modal|NumberInput|PasswordInput|ScrollArea|Select|Switch|Tabs)\//

const LIBRARIES = /node_modules\/(react|react-dom|scheduler|@tanstack)\//

const isOneOf = (modules: readonly string[]) => (id: string) => modules.some((module) => id.endsWith(module))

export default defineConfig({
  plugins: [react(), listeners, budget, preload],
  build: {
    outDir: 'dist/app',
    emptyOutDir: true,
    target: 'es2022',
    // A data: URL would need an exception in the Content-Security-Policy.
    assetsInlineLimit: 0,
    // Tenants and operators have a page each, on ports of their own.
    rolldownOptions: {
      input: ['index.html', 'operator.html'],
      // Rolldown alone writes a file for each set of pages that shares a module: the first page loaded ninety files in a
      // chain. A group takes its modules and everything that they need: what the first pages share goes into one file, the
      // rest of each first page into a file of its own (overview, forms), and modules of three or more other pages into another. React, the router and the
      // queries have a file of their own, which a browser keeps when a release changes only the console.
      output: {
        codeSplitting: {
          groups: [
            { name: 'libraries', priority: 5, test: LIBRARIES },
            { name: 'both', priority: 4, test: isOneOf(BOTH_PAGES) },
            { name: 'overview', priority: 3, test: isOneOf(OVERVIEW) },
            { name: 'forms', priority: 2, test: isOneOf(FORMS) },
            {
              name: 'common',
              priority: 1,
              minShareCount: 3,
              test: (id) => !LATER.test(id) && !id.includes('/src/operator/'),
            },
          ],
        },
      },
    },
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 600,
  },
  server: {
    host: '127.0.0.1',
    proxy: { '/api': server, '/v1/operator': operators, '/metrics': operators },
  },
  test: { include: ['{src,scripts}/**/*.test.ts'], environment: 'node' },
})
