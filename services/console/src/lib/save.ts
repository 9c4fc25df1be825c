import { problemOf } from '../api/problem'

/** Saves text as a file. */
export const save = (text: string, name: string, type: string) => saveBlob(new Blob([text], { type }), name)

export function saveBlob(blob: Blob, name: string) {
  const url = URL.createObjectURL(blob)
  const link = document.createElement('a')
  link.href = url
  link.download = name
  link.click()
  URL.revokeObjectURL(url)
}

/** Saves what the API answers as a table. */
export async function saveCsv(url: string, name: string) {
  const answer = await fetch(url, { headers: { accept: 'text/csv' } })
  if (!answer.ok) throw await problemOf(answer)
  save(await answer.text(), name, 'text/csv')
}
