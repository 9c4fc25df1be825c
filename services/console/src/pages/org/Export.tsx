import { Button, Group, Stack, Text } from '@mantine/core'
import { IconDownload } from '@tabler/icons-react'
import { useMutation } from '@tanstack/react-query'
import { useEffect, useRef, useState } from 'react'
import { useOrganisation } from '../../api/brokers'
import { exportOrganisation, type Progress } from '../../api/export'
import { bytes, capitalised, count, plural } from '../../lib/format'
import { saveBlob } from '../../lib/save'
import { Code } from '../../ui/Code'
import { Panel } from '../../ui/Page'
import { Facts } from '../../ui/Stat'
import { Failure } from '../../ui/State'

const day = () => new Date().toISOString().slice(0, 10)

/** Everything that the organisation owns, as a file. */
export function Export() {
  const { id, name } = useOrganisation()
  const [progress, setProgress] = useState<Progress>({ lines: 0, bytes: 0 })
  const abort = useRef<AbortController>(undefined)
  useEffect(() => () => abort.current?.abort(), [])
  const exporting = useMutation({
    mutationFn: () => {
      setProgress({ lines: 0, bytes: 0 })
      abort.current = new AbortController()
      return exportOrganisation(id, setProgress, abort.current.signal)
    },
    onSuccess: ({ file }) => saveBlob(file, fileName(name)),
  })
  const stop = () => {
    abort.current?.abort()
    exporting.reset()
  }
  return (
    <>
      <Panel
        title="Export"
        lead={`Everything that ${name} owns, as a file with one JSON object a line. Nothing is changed.`}
      >
        <Stack gap="md">
          <Facts rows={CONTENTS} />
          <Group gap="xs">
            <Button
              leftSection={<IconDownload size={16} />}
              loading={exporting.isPending}
              onClick={() => exporting.mutate()}
            >
              Export organisation
            </Button>
            {exporting.isPending && (
              <Button variant="default" onClick={stop}>
                Stop
              </Button>
            )}
            <Text size="sm" c="dimmed" role="status">
              {exporting.isPending && `${plural(progress.lines, 'line')} so far, ${bytes(progress.bytes)}`}
              {exporting.isSuccess && `Saved ${fileName(name)}, ${bytes(exporting.data.file.size)}`}
            </Text>
          </Group>
          {exporting.isError && <Failure error={exporting.error} retry={() => exporting.mutate()} />}
          {exporting.isSuccess && <Counts counts={exporting.data.counts} />}
        </Stack>
      </Panel>
      <Panel
        title="From a terminal"
        lead="The command line writes the file as it comes, which suits a large organisation and a nightly copy. It ends with an error when the export is incomplete."
      >
        <Code
          text={`millrace login --url ${location.origin}\nmillrace organisations export > ${fileName(name)}`}
          label="the commands"
        />
      </Panel>
    </>
  )
}

/** "Plant 7" is "plant-7-2026-11-24.jsonl". */
function fileName(organisation: string) {
  const plain = organisation.toLowerCase().replaceAll(/[^a-z0-9]+/g, '-')
  return `${plain.replaceAll(/^-|-$/g, '') || 'organisation'}-${day()}.jsonl`
}

const CONTENTS: [string, string][] = [
  ['People and programs', 'Members, invitations, API tokens'],
  ['Each broker', 'Settings, limits, credentials, groups, rules, certificates, issuers, webhooks, bans'],
  ['Records', 'Audit log, usage by days, spend caps'],
  ['Left out', 'Passwords and other secrets, sessions, messages'],
]

const NOUNS: Record<string, string> = {
  jwt_issuer: 'JWT issuers',
  client_ca: 'Client CAs',
  audit_entry: 'Audit entries',
  access: 'Authentication settings',
  usage: 'Usage reports',
  organisation: 'Organisation',
}
const nounOf = (kind: string) => NOUNS[kind] ?? `${capitalised(kind.replaceAll('_', ' '))}s`

function Counts({ counts }: { counts: Record<string, number> }) {
  return (
    <section aria-label="What the file contains">
      <Facts rows={Object.entries(counts).map(([kind, lines]) => [nounOf(kind), count(lines)])} />
    </section>
  )
}
