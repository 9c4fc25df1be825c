import { Anchor, Button, Group, Stack, Tabs, Text, TextInput } from '@mantine/core'
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { Fragment, type ReactNode, useState } from 'react'
import { createCredential, type MadeCredential } from '../../api/access'
import { useBroker } from '../../api/brokers'
import type { Endpoint } from '../../api/endpoints'
import { useOnce } from '../../api/once'
import { Problem } from '../../api/problem'
import { isHostName, isLoopback, urlHost } from '../../lib/host'
import { snippetLead } from '../../lib/snippetLead'
import { CA_FILE, EXAMPLE_CLIENT, SNIPPETS, targetOf } from '../../lib/snippets'
import { Code, CopyButton, Secret } from '../../ui/Code'
import { Flag } from '../../ui/Flag'
import { Page, Panel } from '../../ui/Page'
import { Facts } from '../../ui/Stat'
import { Empty, Failure } from '../../ui/State'
import { TabList } from '../../ui/TabList'
import ui from '../../ui/ui.module.css'
import { BySettings } from './access/BySettings'
import { Waiting } from './Waiting'

const KEPT_MS = 10 * 60_000

/** Endpoint, credential, snippets, and the first connection as it comes. */
export function Connect() {
  const { broker, endpoint: served } = useBroker()
  const [made, setMade] = useMadeCredential(broker.name)
  const { host } = useSearch({ from: '/signed-in/b/$broker/connect' })
  // Devices reach a server of this machine by another name than this page does.
  const isHere = served !== null && isLoopback(served.host)
  const endpoint = served && isHere && host && isHostName(host) ? { ...served, host } : served
  return (
    <Page title="Connect" lead="Copy what your device needs. This page shows when the device is connected.">
      {endpoint === null && (
        <Empty title="This server has no listener for MQTT">
          Start it with <Flag>--mqtt-listen</Flag>.
        </Empty>
      )}
      {endpoint && (
        <>
          <Waiting clientId={made?.user} />
          <div className={`${ui.two} ${ui.twoBottom}`}>
            <Where endpoint={endpoint} isHere={isHere} />
            <Credential endpoint={endpoint} made={made} onMade={setMade} />
          </div>
          <Snippets endpoint={endpoint} made={made} />
        </>
      )}
    </Page>
  )
}

/** The credential that this page made. A person who leaves the page finds it again for KEPT_MS, unless the tab is loaded anew or
 * signed out: the server shows a password only once. */
function useMadeCredential(broker: string) {
  const client = useQueryClient()
  const queryKey = ['made credential', broker]
  const { data } = useQuery<MadeCredential | null>({
    queryKey,
    queryFn: () => null,
    initialData: null,
    enabled: false,
    gcTime: KEPT_MS,
  })
  return [data, (made: MadeCredential | null) => void client.setQueryData(queryKey, made)] as const
}

/** The authority that has signed the server's certificate, where devices do not trust it already. */
const certificate = (pem: string): [string, ReactNode] => [
  'CA certificate',
  <Anchor key="ca" href={`data:application/x-pem-file,${encodeURIComponent(pem)}`} download={CA_FILE} inherit>
    Download {CA_FILE}
  </Anchor>,
]

const plainText = (host: string) =>
  isLoopback(host) ? 'none: traffic stays on this machine' : 'none: put a gateway with TLS in front'

function Where({ endpoint, isHere }: { endpoint: Endpoint; isHere: boolean }) {
  const { host, port, tls, wsUrl, caPem } = endpoint
  const copied = (text: string) => (
    <Group gap={4} wrap="nowrap">
      <span className="mono">
        {/* The path of a URL goes to the next line as a whole. */}
        {text.split(/(?<=[^/])(?=\/[^/])/).map((part, at) => (
          <Fragment key={part}>
            {at > 0 && <wbr />}
            {part}
          </Fragment>
        ))}
      </span>
      <CopyButton text={text} label={`Copy ${text}`} />
    </Group>
  )
  return (
    <Panel title="Endpoint">
      <Facts
        rows={[
          ['URL', copied(`${tls ? 'mqtts' : 'mqtt'}://${urlHost(host)}:${port}`)],
          ['Host', copied(host)],
          ['Port', copied(String(port))],
          ['WebSocket', wsUrl ? copied(wsUrl) : 'off'],
          ['Encryption', tls ? 'TLS 1.2 or newer' : plainText(host)],
          ...(caPem ? [certificate(caPem)] : []),
          ['Protocol', 'MQTT 5.0, 3.1.1 or 3.1'],
        ]}
      />
      {isHere && <OnTheNetwork port={port} />}
    </Panel>
  )
}

/** Shown for a server on loopback, because a microcontroller with this snippet would wait forever for 127.0.0.1. */
function OnTheNetwork({ port }: { port: number }) {
  const { host = '' } = useSearch({ from: '/signed-in/b/$broker/connect' })
  const navigate = useNavigate({ from: '/b/$broker/connect' })
  return (
    <Stack gap="xs" mt="md">
      <Text size="sm" c="dimmed">
        Only programs on this machine reach 127.0.0.1. For a device such as an ESP32, stop the server, start
        it on your network with this command, and create a broker of your own.
      </Text>
      <Code
        text={`millrace serve --mqtt-listen 0.0.0.0:${port} --allow-anonymous=false`}
        label="the command that opens the server to the network"
      />
      <TextInput
        label="This machine’s address on your network"
        description="The first address that hostname -I prints. The URL and the snippets use it."
        placeholder="192.168.1.20"
        value={host}
        onChange={(event) =>
          void navigate({
            search: (before) => ({ ...before, host: event.target.value.trim() || undefined }),
            replace: true,
            resetScroll: false,
          })
        }
        error={host !== '' && !isHostName(host) && 'Enter a name or an address, such as 192.168.1.20.'}
        maw={320}
      />
    </Stack>
  )
}

interface CredentialProps {
  endpoint: Endpoint
  made: MadeCredential | null
  onMade: (made: MadeCredential | null) => void
}

function Credential({ endpoint, made, onMade }: CredentialProps) {
  const { path, can } = useBroker()
  const client = useQueryClient()
  const [user, setUser] = useState(EXAMPLE_CLIENT)
  const create = useOnce(createCredential)
  const creating = useMutation({
    mutationFn: () => create({ path, credential: { user } }),
    onSuccess: (credential) => {
      onMade(credential)
      void client.invalidateQueries({ queryKey: ['b', path.broker, 'credentials'] })
    },
  })
  if (made) {
    const name = `${endpoint.userPrefix}${made.user}`
    return (
      <Panel title="Credential">
        <BySettings />
        <Stack gap="md">
          <Facts
            rows={[
              [
                'User name',
                <Group gap={4} wrap="nowrap" key="user">
                  <span className="mono">{name}</span>
                  <CopyButton text={name} label="Copy the user name" />
                </Group>,
              ],
            ]}
          />
          <Secret
            name={`Password of ${made.user}`}
            value={made.secret ?? ''}
            fileName={`${made.user}.txt`}
            file={`user: ${name}\npassword: ${made.secret}`}
          />
          <Text size="sm" c="dimmed">
            This page keeps the password for ten minutes after you leave it, until you reload this tab or you
            sign out.
          </Text>
          <Button variant="default" w="fit-content" onClick={() => onMade(null)}>
            Create another credential
          </Button>
        </Stack>
      </Panel>
    )
  }
  // A viewer sees the notice, too: it says why the server refuses devices.
  if (!can('access:write')) return <BySettings />
  const fields = creating.error instanceof Problem ? creating.error.fields : {}
  return (
    <Panel
      title="Credential"
      lead="The user and password of a device. Only this page shows the password, and the snippets below contain it."
    >
      <BySettings />
      <form
        onSubmit={(event) => {
          event.preventDefault()
          creating.mutate()
        }}
      >
        <Group align="flex-end" gap="sm">
          <TextInput
            label="User"
            value={user}
            onChange={(event) => setUser(event.currentTarget.value)}
            error={fields.user}
            required
            withAsterisk={false}
          />
          <Button type="submit" loading={creating.isPending}>
            Create credential
          </Button>
        </Group>
      </form>
      {creating.isError && !fields.user && <Failure error={creating.error} />}
    </Panel>
  )
}

function Snippets({ endpoint, made }: { endpoint: Endpoint; made: MadeCredential | null }) {
  const { broker } = useBroker()
  const target = targetOf(endpoint, made)
  const login = { isMade: made !== null, isBySettings: broker.access_by_settings }
  const { snippet: asked } = useSearch({ from: '/signed-in/b/$broker/connect' })
  const navigate = useNavigate({ from: '/b/$broker/connect' })
  const snippet = SNIPPETS.find(({ id }) => id === asked) ?? SNIPPETS[0]
  const show = (id: string | null) =>
    void navigate({
      search: (before) => ({ ...before, snippet: id ?? undefined }),
      replace: true,
      resetScroll: false,
    })
  return (
    <Panel title="Snippets" lead={snippet && snippetLead(snippet, target, login)}>
      <Tabs value={snippet?.id ?? null} onChange={show} keepMounted={false}>
        <TabList tabs={SNIPPETS.map(({ id, label }) => ({ value: id, label }))} />
        {SNIPPETS.map(({ id, install, file, run, code }) => (
          <Tabs.Panel key={id} value={id}>
            <Stack gap="xs">
              {install && <Code text={install} label="the installation" />}
              <Text size="xs" c="dimmed" data-testid="file">
                {file}
              </Text>
              <Code text={code(target)} label="the snippet" />
              {run && (
                <>
                  <Text size="xs" c="dimmed">
                    Run it
                  </Text>
                  <Code text={run} label="the run command" />
                </>
              )}
            </Stack>
          </Tabs.Panel>
        ))}
      </Tabs>
    </Panel>
  )
}
