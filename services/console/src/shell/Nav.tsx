import { Menu, UnstyledButton } from '@mantine/core'
import { IconBuilding, IconLayoutGrid, IconPlus, IconSelector } from '@tabler/icons-react'
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { brokersQuery, useNamedBroker } from '../api/brokers'
import mark from '../favicon.svg'
import { GROUPS, PAGES } from './pages'
import classes from './shell.module.css'

const SWITCHER_ROWS = 12

export function Nav() {
  const broker = useNamedBroker()
  return (
    <>
      <Switcher current={broker} />
      <div className={classes.links}>
        {broker && <BrokerLinks broker={broker} />}
        {!broker && <AllBrokers />}
      </div>
      <div className={classes.foot}>
        <Link to="/org" className={classes.link} activeProps={{ 'data-active': true }}>
          <IconBuilding size={17} stroke={1.6} /> Organisation
        </Link>
      </div>
    </>
  )
}

function BrokerLinks({ broker }: { broker: string }) {
  return GROUPS.map(({ group, label }) => (
    <div key={group} className={classes.group}>
      <div className={classes.groupLabel}>{label}</div>
      {PAGES.filter((page) => page.group === group).map(({ path, label, icon: Icon }) => (
        <Link
          key={path}
          to={path === '/' ? '/b/$broker' : `/b/$broker${path}`}
          params={{ broker }}
          className={classes.link}
          activeOptions={{ exact: path === '/', includeSearch: false }}
          activeProps={{ 'data-active': true }}
        >
          <Icon size={17} stroke={1.6} /> {label}
        </Link>
      ))}
    </div>
  ))
}

/** Links to all brokers. Without `all`, "/" opens the only one. */
function AllBrokers() {
  const { data: brokers = [] } = useQuery(brokersQuery)
  return (
    <div className={classes.group}>
      <Link
        to="/"
        search={{ all: true }}
        activeOptions={{ exact: true, includeSearch: false }}
        className={classes.link}
        activeProps={{ 'data-active': true }}
      >
        <IconLayoutGrid size={17} stroke={1.6} /> Brokers
      </Link>
      {brokers.slice(0, SWITCHER_ROWS).map(({ name, display_name }) => (
        <Link key={name} to="/b/$broker" params={{ broker: name }} className={classes.sublink}>
          {display_name}
        </Link>
      ))}
    </div>
  )
}

/** The broker that is shown, and the way to another one. */
function Switcher({ current }: { current: string | undefined }) {
  const { data: brokers = [] } = useQuery(brokersQuery)
  const name = brokers.find((one) => one.name === current)?.display_name ?? current ?? 'Choose a broker'
  return (
    <Menu position="bottom-start" width={260}>
      <Menu.Target>
        <UnstyledButton className={classes.switcher} aria-label={`Broker: ${name}`}>
          <img src={mark} width={24} height={24} alt="" />
          <span className={classes.switcherName}>{name}</span>
          <IconSelector size={16} />
        </UnstyledButton>
      </Menu.Target>
      <Menu.Dropdown>
        {brokers.slice(0, SWITCHER_ROWS).map((one) => (
          <Menu.Item key={one.name} component={Link} to="/b/$broker" params={{ broker: one.name } as never}>
            {one.display_name}
          </Menu.Item>
        ))}
        {brokers.length > 0 && <Menu.Divider />}
        <Menu.Item
          component={Link}
          to="/"
          search={{ all: true } as never}
          leftSection={<IconLayoutGrid size={16} />}
        >
          All brokers
        </Menu.Item>
        <Menu.Item component={Link} to="/brokers/new" leftSection={<IconPlus size={16} />}>
          Create broker
        </Menu.Item>
      </Menu.Dropdown>
    </Menu>
  )
}
