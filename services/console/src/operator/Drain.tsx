import { Text } from '@mantine/core'
import { useQueryClient } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { duration, plural } from '../lib/format'
import { Confirm } from '../ui/Confirm'
import { done } from '../ui/notify'
import { drain, drainedFromQuery, type OwnPod } from './queries'

interface DrainProps {
  pod: OwnPod
  /** Other pods that are alive. */
  others: number
  children: (open: () => void) => ReactNode
}

/** Asks before a drain: the pod disconnects its clients at a rate, so that they connect to other pods. */
export function Drain({ pod, others, children }: DrainProps) {
  const client = useQueryClient()
  const name = pod.name === 'self' ? 'this server' : pod.name
  return (
    <Confirm
      verb="Drain pod"
      title={`Drain ${name}?`}
      name={pod.name === 'self' ? 'drain' : pod.name}
      loses={
        <>
          <Text size="sm">
            {plural(pod.connections, 'connection')} {pod.connections === 1 ? 'is' : 'are'} closed,{' '}
            {closingRate(pod)}. Stored sessions and their messages stay in the store.
          </Text>
          <Text size="sm" mt="xs">
            {others > 0
              ? `The clients connect to ${plural(others, 'other pod')}.`
              : 'No other pod is running, so clients cannot connect until this server is restarted.'}{' '}
            A drained pod accepts no clients until it is restarted. A drain cannot be stopped.
          </Text>
        </>
      }
      act={() => drain(pod.name)}
      onDone={() => {
        done('The drain has begun.')
        // The page of the pod shows the progress from this number of connections on.
        client.setQueryData(drainedFromQuery.queryKey, pod.connections)
        void client.invalidateQueries({ queryKey: ['pod'] })
      }}
    >
      {children}
    </Confirm>
  )
}

function closingRate({ drain_per_second, drain_s_max }: OwnPod) {
  if (drain_per_second === 0) return 'all at once'
  return `${drain_per_second} a second or faster, within ${duration(drain_s_max)}`
}
