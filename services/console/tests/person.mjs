// Counts what a person does in a page and in a terminal.

import { spawnSync } from 'node:child_process'

const ON_PAGE = [
  'goto',
  'reload',
  'goBack',
  'click',
  'dblclick',
  'fill',
  'press',
  'type',
  'check',
  'selectOption',
]
const ON_LOCATOR = [
  'click',
  'dblclick',
  'fill',
  'press',
  'pressSequentially',
  'check',
  'uncheck',
  'selectOption',
]
const ON_KEYBOARD = ['press', 'type', 'insertText']
const ON_MOUSE = ['click', 'dblclick', 'wheel']

/** Notes each action on `tab` until `stop` is called, and each command that is pasted into a terminal. */
export function counted(tab) {
  const actions = []
  const undo = []
  const watch = (owner, names, isOwn = () => true) => {
    for (const name of names) {
      const before = Object.getOwnPropertyDescriptor(owner, name)
      const act = owner[name]
      owner[name] = function (...given) {
        if (isOwn(this)) actions.push(`${name} ${typeof given[0] === 'string' ? given[0] : this}`)
        return act.apply(this, given)
      }
      undo.push(() => (before ? Object.defineProperty(owner, name, before) : delete owner[name]))
    }
  }
  watch(tab, ON_PAGE)
  watch(tab.keyboard, ON_KEYBOARD)
  watch(tab.mouse, ON_MOUSE)
  // All locators share these functions.
  watch(Object.getPrototypeOf(tab.locator('body')), ON_LOCATOR, (locator) => locator.page() === tab)
  return {
    actions,
    pastes: (command) => {
      actions.push(`paste ${command}`)
      const { status, stderr } = spawnSync('sh', ['-c', command], { encoding: 'utf8', timeout: 60_000 })
      if (status !== 0) throw new Error(`"${command}" ended with ${status}: ${stderr}`)
    },
    stop: () => {
      for (const back of undo.reverse()) back()
    },
  }
}
