import { ActionIcon, Button, Group, Text, Tooltip } from '@mantine/core'
import { IconCheck, IconCopy, IconDownload } from '@tabler/icons-react'
import { useEffect, useState } from 'react'
import { optionParts } from '../lib/options'
import { announce } from './announce'
import { notDone } from './notify'
import classes from './ui.module.css'

const CONFIRM_MS = 1500

/** Browsers have the clipboard's API on HTTPS and localhost only. On plain HTTP they still copy what is selected. */
async function copyText(text: string) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text)
  const area = document.createElement('textarea')
  area.value = text
  const focused = document.activeElement instanceof HTMLElement ? document.activeElement : document.body
  // An open dialog keeps the focus inside.
  ;(focused.parentElement ?? focused).append(area)
  area.select()
  const isCopied = document.execCommand('copy')
  area.remove()
  focused.focus()
  if (!isCopied) throw new Error('the browser did not copy')
}

/** Copies, and says for a moment that it did. */
function useCopy(text: string) {
  const [isCopied, setCopied] = useState(false)
  useEffect(() => {
    if (!isCopied) return
    const timer = setTimeout(() => setCopied(false), CONFIRM_MS)
    return () => clearTimeout(timer)
  }, [isCopied])
  const copy = () =>
    copyText(text).then(
      () => {
        setCopied(true)
        announce('Copied')
      },
      () => notDone('The browser did not copy. Select the text and copy it.'),
    )
  return { isCopied, copy }
}

export function CopyButton({ text, label = 'Copy' }: { text: string; label?: string }) {
  const { isCopied, copy } = useCopy(text)
  const said = isCopied ? 'Copied' : label
  return (
    <Tooltip label={said}>
      <ActionIcon variant="subtle" color="gray" size="md" onClick={copy} aria-label={said}>
        {isCopied ? <IconCheck size={16} className={classes.saved} /> : <IconCopy size={16} />}
      </ActionIcon>
    </Tooltip>
  )
}

interface CodeProps {
  text: string
  label?: string
  /** False for columns that must stay below each other: they scroll sideways. */
  isWrapped?: boolean
}

/** A command or a snippet, with a button that copies it. */
export function Code({ text, label, isWrapped = true }: CodeProps) {
  return (
    <div className={classes.code} data-wrap={isWrapped || undefined}>
      {/* A region that scrolls must be reached by keyboard. */}
      <pre tabIndex={isWrapped ? undefined : 0}>{isWrapped ? <Wrapped text={text} /> : text}</pre>
      <CopyButton text={text} label={label ? `Copy ${label}` : 'Copy'} />
    </div>
  )
}

/** Text that breaks between the options of a command, and not at a hyphen of one. */
const Wrapped = ({ text }: { text: string }) =>
  // Each second part is an option.
  optionParts(text).map((part, at) =>
    at % 2 === 1 ? (
      // biome-ignore lint/suspicious/noArrayIndexKey: parts of one text have no other name
      <span key={at} className={classes.option}>
        {part}
      </span>
    ) : (
      part
    ),
  )

interface SecretProps {
  /** For example "Password of esp32-7". */
  name: string
  value: string
  fileName: string
  /** The downloaded text, when it has more than the secret. */
  file?: string
}

/** A secret that is shown once. */
export function Secret({ name, value, fileName, file = value }: SecretProps) {
  const { isCopied, copy } = useCopy(value)
  const url = `data:text/plain;charset=utf-8,${encodeURIComponent(`${file}\n`)}`
  return (
    <div>
      <Text size="sm" fw={500} mb={4}>
        {name}
      </Text>
      <div className={classes.code} data-wrap>
        <pre data-testid="secret">{value}</pre>
      </div>
      <Group gap="xs" mt="xs">
        <Button
          size="xs"
          variant="default"
          leftSection={isCopied ? <IconCheck size={14} /> : <IconCopy size={14} />}
          onClick={copy}
        >
          {isCopied ? 'Copied' : 'Copy'}
        </Button>
        <Button
          size="xs"
          variant="default"
          component="a"
          href={url}
          download={fileName}
          leftSection={<IconDownload size={14} />}
        >
          Download
        </Button>
        <Text size="xs" c="dimmed">
          Shown once. It cannot be read again.
        </Text>
      </Group>
    </div>
  )
}
