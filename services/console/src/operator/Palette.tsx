import { useMantineColorScheme } from '@mantine/core'
import type { SpotlightActionData } from '@mantine/spotlight'
import { IconKey, IconLogout, IconMoon, IconUsers } from '@tabler/icons-react'
import { useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import { plural } from '../lib/format'
import { type Group, PaletteDialog } from '../shell/PaletteDialog'
import { hasToken } from './client'
import { PAGES } from './pages'
import { forgetToken, tenantsQuery } from './queries'

const TENANTS_SHOWN = 8

/** Finds pages, tenants and actions of operators. */
export function Palette({ close }: { close: () => void }) {
  const [query, setQuery] = useState('')
  return (
    <PaletteDialog
      close={close}
      query={query}
      onQuery={setQuery}
      groups={[usePages(), useTenants(query), useActions()]}
      placeholder="Pages, tenants, actions"
    />
  )
}

function usePages(): Group {
  const navigate = useNavigate()
  const actions = PAGES.map(
    ({ to, label, key, icon: Icon }): SpotlightActionData => ({
      id: `page ${to}`,
      label,
      description: `g ${key}`,
      leftSection: <Icon size={18} stroke={1.6} />,
      onClick: () => void navigate({ to }),
    }),
  )
  return { group: 'Pages', actions }
}

/** Tenants whose name contains what is typed, or whose id begins with it. The typed text is their keyword, so that the dialog, which
 * filters by label, description and keywords, shows all of them. */
function useTenants(query: string): Group {
  const navigate = useNavigate()
  const typed = query.trim().toLowerCase()
  const { data } = useQuery({ ...tenantsQuery, enabled: typed !== '' })
  const found =
    typed === ''
      ? []
      : (data?.items ?? []).filter(
          ({ name, id }) => name.toLowerCase().includes(typed) || id.startsWith(typed),
        )
  const actions = found.slice(0, TENANTS_SHOWN).map(
    ({ id, name, brokers, suspension }): SpotlightActionData => ({
      id: `tenant ${id}`,
      label: name,
      description: `Tenant, ${plural(brokers, 'broker')}${suspension ? ', suspended' : ''}`,
      keywords: [query],
      leftSection: <IconUsers size={18} stroke={1.6} />,
      onClick: () => void navigate({ to: '/tenants' as string, search: { tenant: id } as never }),
    }),
  )
  return { group: 'Tenants', actions }
}

function useActions(): Group {
  const navigate = useNavigate()
  const { toggleColorScheme } = useMantineColorScheme()
  const actions: SpotlightActionData[] = [
    {
      id: 'suspended',
      label: 'Suspended tenants',
      leftSection: <IconUsers size={18} stroke={1.6} />,
      onClick: () => void navigate({ to: '/tenants' as string, search: { state: 'suspended' } as never }),
    },
    {
      id: 'reset link',
      label: 'Create reset link',
      description: 'Forgotten password or second factor',
      leftSection: <IconKey size={18} stroke={1.6} />,
      onClick: () => void navigate({ to: '/accounts' as string }),
    },
    {
      id: 'theme',
      label: 'Change the theme',
      description: 'Light or dark',
      leftSection: <IconMoon size={18} stroke={1.6} />,
      onClick: toggleColorScheme,
    },
  ]
  if (hasToken()) {
    actions.push({
      id: 'forget token',
      label: 'Forget the token',
      leftSection: <IconLogout size={18} stroke={1.6} />,
      onClick: forgetToken,
    })
  }
  return { group: 'Actions', actions }
}
