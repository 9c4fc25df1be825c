// Mantine's Spotlight shows the selected action by a colour alone. These roles of a combobox and its list of options also announce
// the selection to screen readers.

import { announce } from '../ui/announce'

const LIST = '.mantine-Spotlight-actionsList'
const GROUP = '.mantine-Spotlight-actionsGroup'
const EMPTY = '.mantine-Spotlight-empty'

/** Ref of the palette's input: names the dialog, and updates the roles whenever the actions change. */
export function describeToScreenReaders(input: HTMLInputElement | null) {
  const dialog = input?.closest('[role=dialog]')
  if (!input || !dialog) return
  dialog.setAttribute('aria-label', 'Search')
  let isEmpty = false
  const describe = () => {
    describeList(input, dialog)
    const wasEmpty = isEmpty
    isEmpty = dialog.querySelector(EMPTY) !== null
    if (isEmpty && !wasEmpty) announce('No result')
  }
  describe()
  const observer = new MutationObserver(describe)
  observer.observe(dialog, { childList: true, subtree: true, attributeFilter: ['data-selected'] })
  return () => observer.disconnect()
}

function describeList(input: HTMLInputElement, dialog: Element) {
  const list = dialog.querySelector<HTMLElement>(LIST)
  const actions = [...(list?.querySelectorAll<HTMLElement>('[data-action]') ?? [])]
  for (const [at, action] of actions.entries()) {
    action.id = `palette-${at}`
    action.setAttribute('role', 'option')
    action.setAttribute('aria-selected', String('selected' in action.dataset))
  }
  for (const group of list?.querySelectorAll<HTMLElement>(GROUP) ?? []) {
    group.setAttribute('role', 'group')
    group.setAttribute('aria-label', groupName(group))
  }
  list?.setAttribute('role', 'listbox')
  list?.setAttribute('aria-label', 'Found')
  const chosen = actions.find((action) => 'selected' in action.dataset)
  const attributes = {
    role: 'combobox',
    'aria-autocomplete': 'list',
    'aria-expanded': String(actions.length > 0),
    'aria-controls': list?.id,
    'aria-activedescendant': chosen?.id,
  }
  for (const [name, value] of Object.entries(attributes)) {
    if (value) input.setAttribute(name, value)
    else input.removeAttribute(name)
  }
}

/** Mantine passes the group's name to its style sheet in this variable, as a quoted string. */
const groupName = (group: HTMLElement) =>
  group.style.getPropertyValue('--spotlight-label').slice(1, -1).replaceAll(/\\(.)/g, '$1')
