// When the focused element leaves the document, such as a deleted row, the browser focuses nothing, and a screen reader starts again
// at the top of the page.

/** Wait before the focus is moved, because a closing dialog may return the focus, or a form may take it. */
const SETTLE_MS = 60

const PARTS = '[role=dialog], section, main'
const HEADINGS = 'h1, h2, h3'

/** Moves a lost focus to the nearest part of the page that is left; gives a button its focus back that was disabled while its
 * request was under way. */
export function keepFocus(page: HTMLElement) {
  /** The focused element, and the elements around it. */
  let path: Element[] = []
  let beforeDialog: Element[] = []
  let timer: ReturnType<typeof setTimeout> | undefined

  const isNowhere = () => document.activeElement === null || document.activeElement === document.body
  const look = () => {
    timer = undefined
    const [last] = path
    if (!last || !isNowhere()) return
    if (last.isConnected) {
      if (last instanceof HTMLButtonElement && !last.disabled) last.focus({ preventScroll: true })
      return
    }
    const place = placeNear([...path.slice(1), ...beforeDialog])
    place?.focus({ preventScroll: true })
  }
  const lookSoon = () => {
    const [last] = path
    if (!last || timer !== undefined || !isNowhere()) return
    timer = setTimeout(look, SETTLE_MS)
  }

  page.addEventListener('focusin', ({ target }) => {
    if (path[0] && !path[0].closest('[role=dialog]')) beforeDialog = path
    path = pathTo(target as Element)
  })
  // A click beside all controls is meant to leave them. Safari does not focus a button that is clicked.
  page.addEventListener('pointerdown', ({ target }) => {
    path = pathTo((target as Element).closest('a, button, input, select, textarea, label, [tabindex]'))
  })
  new MutationObserver(lookSoon).observe(page, {
    childList: true,
    subtree: true,
    attributeFilter: ['disabled'],
  })
}

function pathTo(element: Element | null) {
  const path: Element[] = []
  for (let one = element; one; one = one.parentElement) path.push(one)
  return path
}

function placeNear(around: readonly Element[]): HTMLElement | null {
  for (const one of around) {
    if (!one.isConnected || !(one instanceof HTMLElement)) continue
    if (one.tabIndex === 0) return one
    if (one.matches(PARTS)) return focusable(one.querySelector<HTMLElement>(HEADINGS) ?? one)
  }
  const main = document.querySelector<HTMLElement>('[aria-modal=true], main')
  return main && focusable(main.querySelector<HTMLElement>(HEADINGS) ?? main)
}

function focusable(one: HTMLElement) {
  if (!one.hasAttribute('tabindex')) one.tabIndex = -1
  return one
}
