import { useMutation, useQueryClient } from '@tanstack/react-query'
import { useBroker } from '../../../api/brokers'
import { retryDeadLetters } from '../../../api/webhooks'
import { done, failed } from '../../../ui/notify'

/** Sends a dead letter of a webhook again; without an id, all of them. */
export function useRetry(name: string, onDone?: () => void) {
  const { path } = useBroker()
  const client = useQueryClient()
  return useMutation({
    mutationFn: (id: string | undefined) => retryDeadLetters(path, name, id),
    onSuccess: (_, id) => {
      done(id === undefined ? 'The server sends the events again.' : 'The server sends the event again.')
      void client.invalidateQueries({ queryKey: ['b', path.broker] })
      onDone?.()
    },
    onError: failed,
  })
}
