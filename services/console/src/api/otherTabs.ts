// Tells the other tabs of this browser who has signed in or out, because the session belongs to the browser.

let channel: BroadcastChannel | undefined

const opened = () => {
  channel ??= new BroadcastChannel('millrace-session')
  return channel
}

/** `person` is the id of who is signed in now; null: nobody. */
export const tellOtherTabs = (person: string | null) => opened().postMessage(person)

/** `listener` gets what another tab has told. */
export const whenOtherTabTells = (listener: (person: string | null) => void) =>
  opened().addEventListener('message', ({ data }: MessageEvent<string | null>) => listener(data))
