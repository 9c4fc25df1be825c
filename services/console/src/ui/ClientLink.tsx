import { Anchor } from '@mantine/core'
import { Link } from '@tanstack/react-router'

/** A client id, on its way to the page of the client. */
export function ClientLink({ broker, id }: { broker: string; id: string }) {
  return (
    <Anchor
      component={Link}
      to="/b/$broker/clients/$client"
      params={{ broker, client: id } as never}
      className="mono"
      title={id}
    >
      {id}
    </Anchor>
  )
}
