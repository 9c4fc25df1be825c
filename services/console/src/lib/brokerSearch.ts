interface Named {
  name: string
  display_name: string
}

/** The brokers whose name or display name contains the text, in the given order. An empty text finds all. */
export function brokersFound<T extends Named>(brokers: readonly T[], text: string): T[] {
  const wanted = text.trim().toLowerCase()
  return brokers.filter(({ name, display_name }) =>
    [name, display_name].some((one) => one.toLowerCase().includes(wanted)),
  )
}
