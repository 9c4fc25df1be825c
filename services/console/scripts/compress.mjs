// Puts a Brotli copy beside each text file of the build, so that the server never compresses.

import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { brotliCompressSync, constants } from 'node:zlib'

const folder = fileURLToPath(new URL('../dist/app', import.meta.url))
const params = { [constants.BROTLI_PARAM_QUALITY]: 11 }

for (const name of readdirSync(folder, { recursive: true })) {
  const path = join(folder, name)
  // The server writes a nonce into the page, so that is sent as it is.
  if (!statSync(path).isFile() || !/\.(js|css|svg)$/.test(name)) continue
  writeFileSync(`${path}.br`, brotliCompressSync(readFileSync(path), { params }))
}
