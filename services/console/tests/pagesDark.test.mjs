// Every page, with content and without, in the dark theme, wide and narrow.

import { looksRight, prepared, READERS } from './pagesLook.mjs'

const made = prepared()
for (const reader of READERS) if (reader.colorScheme === 'dark') looksRight(made, reader)
