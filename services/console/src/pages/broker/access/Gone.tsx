import { Button } from '@mantine/core'
import { Empty } from '../../../ui/State'

/** Content of a drawer whose item does not exist any more. */
export const Gone = ({ title, onClose }: { title: string; onClose: () => void }) => (
  <Empty
    title={title}
    action={
      <Button variant="default" onClick={onClose}>
        Back to the list
      </Button>
    }
  >
    It has been deleted.
  </Empty>
)
