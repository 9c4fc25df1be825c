import { MultiSelect, NumberInput, Switch, Textarea, TextInput } from '@mantine/core'
import { useState } from 'react'
import { type NamedRows, putNamed } from '../../../api/access'
import { useBroker } from '../../../api/brokers'
import { Choice } from '../../../ui/Choice'
import { Form } from '../../../ui/Form'
import { ConnectedClients } from '../../../ui/Losses'
import { PasswordInput } from '../../../ui/PasswordInput'
import type { Column } from '../../../ui/Rows'
import { GroupSelect } from './GroupSelect'
import { NamedList } from './NamedList'
import { NameInput } from './NameInput'
import { SwitchedOff } from './SwitchedOff'

type Issuer = NamedRows['jwt-issuers']
type Kind = Issuer['key']['kind']
/** Names of claims; rules and client id may be empty. */
interface Claims {
  user: string
  rules: string
  clientId: string
}
/** The problems that the server found, by field. */
type Wrong = Record<string, string>

/** The default of the API. */
const LEEWAY_S = 30

const ALGORITHMS: Record<Kind, Issuer['algorithms']> = {
  secret: ['HS256'],
  pem: ['RS256', 'ES256'],
  jwks: ['RS256', 'ES256'],
}

const columns: Column<Issuer>[] = [
  { key: 'name', header: 'Name', width: 'minmax(0, 1fr)', cell: ({ name }) => name },
  { key: 'issuer', header: 'Issuer', width: 'minmax(0, 2fr)', cell: ({ issuer }) => issuer ?? 'any' },
  {
    key: 'key',
    header: 'Key',
    width: '100px',
    isExtra: true,
    cell: ({ key }) => (key.kind === 'jwks' ? 'key set' : key.kind),
  },
  {
    key: 'algorithms',
    header: 'Algorithms',
    width: '140px',
    isExtra: true,
    cell: ({ algorithms }) => algorithms.join(', '),
  },
  {
    key: 'enabled',
    header: 'Enabled',
    width: '72px',
    cell: ({ enabled }) => (enabled === false ? 'no' : 'yes'),
  },
]

/** Issuers whose tokens clients authenticate with. */
export function Issuers() {
  return (
    <NamedList
      kind="jwt-issuers"
      title="JWT issuers"
      lead="A client sends a JWT of one of these issuers as its password. Switch tokens on under Authentication."
      notice={<SwitchedOff what="tokens" isOff={({ tokens }) => !tokens} />}
      noun="issuer"
      empty={{
        title: 'No issuer yet',
        text: 'Add the issuer of your tokens with its key, and devices connect with a JWT.',
      }}
      columns={columns}
      loses={({ name }) => (
        <>
          <ConnectedClients isOne={({ method }) => method === `token:${name}`} />, and no client can come back
          with one of its tokens.
        </>
      )}
      form={(row, onDone) => <IssuerForm row={row} onDone={onDone} />}
    />
  )
}

const keyText = (key: Issuer['key'] | undefined) => {
  if (key?.kind === 'pem') return key.pem
  return key?.kind === 'jwks' ? key.url : ''
}

const keySettings = (kind: Kind, key: string, isBase64: boolean): Issuer['key'] => {
  if (kind === 'pem') return { kind, pem: key }
  return kind === 'jwks' ? { kind, url: key } : { kind, secret: key || null, base64: isBase64 }
}

function IssuerForm({ row, onDone }: { row: Issuer | undefined; onDone: () => void }) {
  const { path } = useBroker()
  const [before] = useState(row)
  const [name, setName] = useState(row?.name ?? '')
  const [issuer, setIssuer] = useState(row?.issuer ?? '')
  const [audience, setAudience] = useState((row?.audience ?? []).join(' '))
  const [kind, setKind] = useState<Kind>(row?.key.kind ?? 'jwks')
  const [key, setKey] = useState(keyText(row?.key))
  const [base64, setBase64] = useState(row?.key.kind === 'secret' && (row.key.base64 ?? false))
  const [algorithms, setAlgorithms] = useState<Issuer['algorithms']>(row?.algorithms ?? ['RS256'])
  const [claims, setClaims] = useState<Claims>({
    user: row?.claims?.user ?? 'sub',
    rules: row?.claims?.rules ?? '',
    clientId: row?.claims?.client_id ?? '',
  })
  const [enabled, setEnabled] = useState(row?.enabled ?? true)
  const [group, setGroup] = useState(row?.group ?? null)
  const [leeway, setLeeway] = useState<number | string>(row?.leeway_s ?? LEEWAY_S)
  const [endsAtExpiry, setEndsAtExpiry] = useState(row?.disconnect_at_expiry ?? true)

  const stored = kind === 'secret' && row?.key.kind === 'secret' ? row.key : undefined
  const isKept = stored !== undefined && key === ''
  // The server keeps the encoding with the secret.
  const isBase64 = isKept ? (stored.base64 ?? false) : base64

  const save = (overwrites: boolean) =>
    putNamed(
      path,
      'jwt-issuers',
      name,
      {
        algorithms,
        issuer: issuer || null,
        audience: audience.split(/\s+/).filter(Boolean),
        key: keySettings(kind, key, isBase64),
        claims: {
          user: claims.user,
          rules: claims.rules || null,
          client_id: claims.clientId || null,
        },
        enabled,
        group,
        leeway_s: leeway === '' ? LEEWAY_S : Number(leeway),
        disconnect_at_expiry: endsAtExpiry,
      },
      before,
      overwrites,
    )
  const choose = (next: Kind) => {
    setKind(next)
    setKey('')
    setAlgorithms(ALGORITHMS[next].slice(0, 1))
  }
  return (
    <Form verb="Save issuer" act={save} onDone={onDone}>
      {(wrong) => (
        <>
          {!row && <NameInput value={name} onChange={setName} error={wrong.name} placeholder="login" />}
          <TextInput
            label="Issuer"
            description="Value of the claim iss. Empty: any issuer."
            placeholder="https://login.example.org"
            value={issuer}
            onChange={(event) => setIssuer(event.currentTarget.value)}
            error={wrong.issuer}
          />
          <TextInput
            label="Audience"
            description="Values of the claim aud, separated by spaces. One of them must match. Empty: any audience."
            value={audience}
            onChange={(event) => setAudience(event.currentTarget.value)}
            error={wrong.audience}
          />
          <KeyFields
            kind={kind}
            onKind={choose}
            value={key}
            onChange={setKey}
            isStored={stored !== undefined}
            base64={{ is: isBase64, set: setBase64, isKept }}
            wrong={wrong}
          />
          <MultiSelect
            label="Algorithms"
            data={ALGORITHMS[kind]}
            value={algorithms}
            onChange={(value) => setAlgorithms(value as Issuer['algorithms'])}
            error={wrong.algorithms}
          />
          <ClaimFields claims={claims} onChange={setClaims} wrong={wrong} />
          <GroupSelect
            description="Its rules apply to clients of these tokens, unless a credential with their user name has another group."
            value={group}
            onChange={setGroup}
            error={wrong.group}
          />
          <NumberInput
            label="Tolerated clock difference"
            description="Between the issuer and the server, in seconds"
            min={0}
            allowDecimal={false}
            value={leeway}
            onChange={setLeeway}
            error={wrong.leeway_s}
          />
          <Switch
            label="Disconnect at expiry"
            description="The broker disconnects a client when its token expires. Off: the client stays until it disconnects."
            checked={endsAtExpiry}
            onChange={(event) => setEndsAtExpiry(event.currentTarget.checked)}
          />
          <Switch
            label="Enabled"
            checked={enabled}
            onChange={(event) => setEnabled(event.currentTarget.checked)}
          />
        </>
      )}
    </Form>
  )
}

interface KeyFieldsProps {
  kind: Kind
  onKind: (next: Kind) => void
  /** PEM, URL or secret. */
  value: string
  onChange: (next: string) => void
  /** The server has a secret, which it does not show. */
  isStored: boolean
  /** Whether the secret is Base64; `isKept`: the stored secret stays, and its encoding with it. */
  base64: { is: boolean; set: (next: boolean) => void; isKept: boolean }
  wrong: Wrong
}

function KeyFields({ kind, onKind, value, onChange, isStored, base64, wrong }: KeyFieldsProps) {
  return (
    <>
      <Choice
        isWide
        label="Kind of key"
        data={[
          { value: 'jwks', label: 'Key set (URL)' },
          { value: 'pem', label: 'Public key' },
          { value: 'secret', label: 'Shared secret' },
        ]}
        value={kind}
        onChange={(next) => onKind(next as Kind)}
      />
      {kind === 'jwks' && (
        <TextInput
          label="URL of the key set"
          type="url"
          placeholder="https://login.example.org/jwks.json"
          value={value}
          onChange={(event) => onChange(event.currentTarget.value)}
          error={wrong['key.url'] ?? wrong.key}
          required
          withAsterisk={false}
        />
      )}
      {kind === 'pem' && (
        <Textarea
          label="Public key"
          description="PEM"
          autosize
          minRows={5}
          classNames={{ input: 'mono' }}
          value={value}
          onChange={(event) => onChange(event.currentTarget.value)}
          error={wrong['key.pem'] ?? wrong.key}
          required
          withAsterisk={false}
        />
      )}
      {kind === 'secret' && (
        <PasswordInput
          label="Shared secret"
          description={isStored ? 'Leave it empty to keep the stored secret.' : 'At least 32 bytes'}
          value={value}
          onChange={(event) => onChange(event.currentTarget.value)}
          autoComplete="off"
          error={wrong['key.secret'] ?? wrong.key}
        />
      )}
      {kind === 'secret' && (
        <Switch
          label="The secret is Base64"
          description={
            base64.isKept ? 'Enter the secret again to change this.' : 'The key is what the text decodes to.'
          }
          disabled={base64.isKept}
          checked={base64.is}
          onChange={(event) => base64.set(event.currentTarget.checked)}
        />
      )}
    </>
  )
}

interface ClaimFieldsProps {
  claims: Claims
  onChange: (next: Claims) => void
  wrong: Wrong
}

function ClaimFields({ claims, onChange, wrong }: ClaimFieldsProps) {
  return (
    <>
      <TextInput
        label="Claim with the user"
        value={claims.user}
        onChange={(event) => onChange({ ...claims, user: event.currentTarget.value })}
        error={wrong['claims.user']}
      />
      <TextInput
        label="Claim with rules"
        description="The rules in this claim come before all others. Empty: none."
        value={claims.rules}
        onChange={(event) => onChange({ ...claims, rules: event.currentTarget.value })}
        error={wrong['claims.rules']}
      />
      <TextInput
        label="Claim with the client id"
        description="A client may connect only with the client id in this claim. Empty: any client id."
        value={claims.clientId}
        onChange={(event) => onChange({ ...claims, clientId: event.currentTarget.value })}
        error={wrong['claims.client_id']}
      />
    </>
  )
}
