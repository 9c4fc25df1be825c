// Parts of pages as readers may meet them: snippets on a narrow window, disabled buttons, compact tables.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { disabledContrast, serious, settled } from './harness.mjs'
import { cutCode, prepared, READERS } from './pagesLook.mjs'

const made = prepared()

test('390 px: each snippet is seen whole', async () => {
  const { tab, context } = await made.harness.visitor(made.world.api, {
    viewport: { width: 390, height: 844 },
  })
  await tab.goto(new URL(`/b/${made.world.tenant}/connect`, made.world.server.url).href)
  await settled(tab)
  const names = await tab.getByRole('tab').allTextContents()
  assert.ok(names.length >= 8, names.join())
  for (const name of names) {
    await tab.getByRole('tab', { name, exact: true }).click()
    await tab.getByRole('tabpanel', { name }).locator('pre').first().waitFor()
    assert.deepEqual(await tab.evaluate(cutCode), [], name)
  }
  await context.close()
})

for (const { name, ...reader } of READERS) {
  test(`${name}: the label of a disabled button can be read`, async () => {
    const { tab, context } = await made.harness.visitor(made.world.api, {
      ...reader,
      reducedMotion: 'reduce',
    })
    await tab.goto(new URL('/me', made.world.server.url).href)
    await settled(tab)
    const button = tab.getByRole('button', { name: 'Change name' })
    assert.ok(await button.isDisabled())
    const contrast = await disabledContrast(button)
    // AA for text of this size.
    assert.ok(contrast >= 4.5, `the contrast is ${contrast}`)
    await context.close()
  })
}

test('compact tables: rows are lower, cut no text, and stay so after a reload', async () => {
  const { tab, context, complaints } = await made.harness.visitor(made.world.api, {
    viewport: { width: 1440, height: 900 },
  })
  const rowHeight = () =>
    tab
      .getByRole('row')
      .nth(1)
      .evaluate((row) => row.getBoundingClientRect().height)
  await tab.goto(new URL(made.pages().clients, made.world.server.url).href)
  await tab.getByRole('row').nth(1).waitFor()
  const spacious = await rowHeight()
  await tab.getByRole('button', { name: 'Use compact tables' }).click()
  await tab.getByRole('button', { name: 'Use spacious tables' }).waitFor()
  const compact = await rowHeight()
  assert.ok(compact < spacious, `${compact} px instead of ${spacious}`)
  await tab.reload()
  await tab.getByRole('row').nth(1).waitFor()
  assert.equal(await rowHeight(), compact)
  const found = []
  for (const page of [
    'clients',
    'sessions',
    'topics',
    'incidents',
    'access',
    'webhooks',
    'live',
    'org-members',
    'org-tokens',
    'org-audit',
  ]) {
    await tab.goto(new URL(made.pages()[page], made.world.server.url).href)
    await settled(tab)
    await tab.getByRole('row').nth(1).waitFor()
    found.push(...(await serious(tab)).map((one) => `${page}: ${one}`))
    found.push(...(await tab.evaluate(cutCells)).map((text) => `${page} cuts ${text}`))
  }
  assert.deepEqual(found, [])
  assert.deepEqual(complaints, [])
  await context.close()
})

/** Runs in the page: cells whose content is higher than their row. */
function cutCells() {
  const isCut = (cell) => cell.getBoundingClientRect().height > cell.parentElement.clientHeight
  return [...document.querySelectorAll('[role=cell]')]
    .filter(isCut)
    .map((one) => one.textContent.slice(0, 40))
}
