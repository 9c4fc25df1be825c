import { VisuallyHidden } from '@mantine/core'
import { useAnnounced } from './announce'

/** The region is in the document before its first text: a screen reader announces changes of regions that it knows. */
export const Announcements = () => <VisuallyHidden role="status">{useAnnounced()}</VisuallyHidden>
