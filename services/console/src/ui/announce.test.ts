import { afterEach, beforeEach, expect, test, vi } from 'vitest'

beforeEach(() => {
  vi.useFakeTimers()
  vi.resetModules()
})
afterEach(() => vi.useRealTimers())

/** The texts of the live region, in the order in which they are shown. */
async function region() {
  const heard: string[] = []
  vi.doMock('react', () => ({
    useEffect: () => {},
    useRef: () => {},
    useSyncExternalStore: (subscribe: (listener: () => void) => void, read: () => string) => {
      subscribe(() => heard.push(read()))
      return read()
    },
  }))
  const announcer = await import('./announce')
  const listen = announcer.useAnnounced
  listen()
  return { ...announcer, heard }
}

test('the same text is said again, because it goes in between', async () => {
  const { announce, heard } = await region()
  announce('Copied')
  vi.advanceTimersByTime(1_000)
  announce('Copied')
  expect(heard).toEqual(['Copied', '', 'Copied'])
})

test('a page is named when it opens by a link, and the first one is not', async () => {
  const { announcePage, heard } = await region()
  announcePage('Overview')
  announcePage('Overview')
  expect(heard).toEqual([])
  announcePage('Clients')
  expect(heard).toEqual(['Clients'])
})
