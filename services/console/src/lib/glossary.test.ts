import { readdirSync, readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { VERBS } from './glossary'

const pages = readdirSync('src', { recursive: true, encoding: 'utf8' }).filter((name) =>
  name.endsWith('.tsx'),
)

test('each button that changes something begins with a verb of the glossary', () => {
  const said = pages.flatMap((page) =>
    [...readFileSync(`src/${page}`, 'utf8').matchAll(/\bverb="([A-Z]\w+)/g)].map(
      ([, verb]) => `${verb} in ${page}`,
    ),
  )
  expect(said.length).toBeGreaterThan(30)
  const verbs: readonly string[] = VERBS
  expect(said.filter((one) => !verbs.includes(one.split(' ')[0] ?? ''))).toEqual([])
})

test('no page kicks or purges', () => {
  const wrong = pages.filter((page) => /\b(kick|purge)/i.test(readFileSync(`src/${page}`, 'utf8')))
  expect(wrong).toEqual([])
})
