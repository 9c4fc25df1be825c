// Every page, with content and without, as each reader may meet it: light and wide, dark and narrow.

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { demo } from './demo.mjs'
import { disabledContrast, Harness, serious, settled } from './harness.mjs'
import { pagesOf, WITHOUT_SESSION } from './pages.mjs'

let world
let harness

before(async () => {
  world = await demo()
  harness = await Harness.on(world.server)
})

after(async () => {
  await harness?.close()
  await world?.stop()
})

const READERS = [
  { name: 'light, 1440 px', colorScheme: 'light', viewport: { width: 1440, height: 900 } },
  { name: 'dark, 390 px', colorScheme: 'dark', viewport: { width: 390, height: 844 } },
]

for (const { name, ...reader } of READERS) {
  test(`${name}: axe finds nothing serious, nothing scrolls sideways, no page complains`, async () => {
    const member = await harness.visitor(world.api, { ...reader, reducedMotion: 'reduce' })
    const guest = await harness.visitor(undefined, { ...reader, reducedMotion: 'reduce' })
    const found = []
    for (const [page, path] of Object.entries(pagesOf({ ...world, admin: world.server.admin }))) {
      const { tab } = WITHOUT_SESSION.has(page) ? guest : member
      await tab.goto(new URL(path, world.server.url).href)
      await settled(tab)
      found.push(...(await serious(tab)).map((one) => `${page}: ${one}`))
      const wide = await tab.evaluate(() => document.documentElement.scrollWidth - innerWidth)
      if (wide > 0) found.push(`${page} is ${wide} px wider than the window`)
    }
    assert.deepEqual(found, [])
    assert.deepEqual([...member.complaints, ...guest.complaints], [])
    await member.context.close()
    await guest.context.close()
  })
}

for (const { name, ...reader } of READERS) {
  test(`${name}: the label of a disabled button can be read`, async () => {
    const { tab, context } = await harness.visitor(world.api, { ...reader, reducedMotion: 'reduce' })
    await tab.goto(new URL('/me', world.server.url).href)
    await settled(tab)
    const button = tab.getByRole('button', { name: 'Change name' })
    assert.ok(await button.isDisabled())
    const contrast = await disabledContrast(button)
    // AA for text of this size.
    assert.ok(contrast >= 4.5, `the contrast is ${contrast}`)
    await context.close()
  })
}
