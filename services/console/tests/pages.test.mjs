// Every page, with content and without, in the light theme, wide and narrow.

import { looksRight, prepared, READERS } from './pagesLook.mjs'

const made = prepared()
for (const reader of READERS) if (reader.colorScheme === 'light') looksRight(made, reader)
