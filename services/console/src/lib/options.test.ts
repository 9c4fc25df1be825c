import { expect, test } from 'vitest'
import { optionParts } from './options'

test.each([
  ['millrace serve --allow-anonymous=false', ['millrace serve ', '--allow-anonymous=false', '']],
  [
    "mosquitto_sub -h 127.0.0.1 -t 'hello/#' -v",
    ['mosquitto_sub ', '-h 127.0.0.1', ' ', "-t 'hello/#'", ' ', '-v', ''],
  ],
  ['-u k3v9x2mwqd7r/a-device-with-a-long-name x', ['', '-u', ' k3v9x2mwqd7r/a-device-with-a-long-name x']],
  ['--tls-use-os-certs -u a', ['', '--tls-use-os-certs', ' ', '-u a', '']],
  ['idf.py create-project hello', ['idf.py create-project hello']],
])('%s keeps each option in one line', (text, parts) => {
  expect(optionParts(text)).toEqual(parts)
  expect(parts.join('')).toBe(text)
})
