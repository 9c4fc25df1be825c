// Notices between the tabs of this browser about who has signed in or out, because the session belongs to the browser.

let channel: BroadcastChannel | undefined

const opened = () => {
  channel ??= new BroadcastChannel('millrace-session')
  return channel
}

/** `person` is the id of the person who is signed in now; null: nobody. */
export const notifyOtherTabs = (person: string | null) => opened().postMessage(person)

/** `listener` gets the notices of other tabs. */
export const onNotice = (listener: (person: string | null) => void) =>
  opened().addEventListener('message', ({ data }: MessageEvent<string | null>) => listener(data))
