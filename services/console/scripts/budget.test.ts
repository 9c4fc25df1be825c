import { expect, test } from 'vitest'
import { scriptBytes } from './budget'

const noise = (bytes: number, seed: number) => {
  let state = seed
  return Array.from({ length: bytes }, () => {
    state = (state * 1_103_515_245 + 12_345) % 2 ** 31
    return String.fromCharCode(33 + ((state >> 16) % 90))
  }).join('')
}
const chunk = (module: string, bytes: number, imports: string[] = []) => ({
  type: 'chunk',
  moduleIds: [`/console/${module}`],
  code: noise(bytes, module.length),
  imports,
})

test('what a page needs is counted once, with all that it imports', () => {
  const bundle = {
    'main.js': chunk('src/main.tsx', 10_000, ['shared.js']),
    'page.js': chunk('src/page.tsx', 10_000, ['shared.js']),
    'shared.js': chunk('src/shared.ts', 10_000),
    'other.js': chunk('src/other.tsx', 90_000),
  }
  const both = scriptBytes(bundle, ['src/main.tsx', 'src/page.tsx'])
  const alone = scriptBytes(bundle, ['src/main.tsx'])
  expect(both).toBeLessThan(30_000)
  expect(both - alone).toBeGreaterThan(5_000)
  expect(both - alone).toBeLessThan(10_000)
})

test('a page that was renamed is not forgotten', () => {
  expect(() => scriptBytes({}, ['src/main.tsx'])).toThrow('has no src/main.tsx')
})
