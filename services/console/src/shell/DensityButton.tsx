import { ActionIcon, Tooltip } from '@mantine/core'
import { IconBaselineDensityMedium, IconBaselineDensitySmall } from '@tabler/icons-react'
import { setDensity, useDensity } from '../ui/density'

export function DensityButton() {
  const isCompact = useDensity() === 'compact'
  const label = isCompact ? 'Use spacious tables' : 'Use compact tables'
  return (
    <Tooltip label={label}>
      <ActionIcon
        variant="subtle"
        color="gray"
        size="lg"
        aria-label={label}
        visibleFrom="sm"
        onClick={() => setDensity(isCompact ? 'spacious' : 'compact')}
      >
        {isCompact ? <IconBaselineDensityMedium size={18} /> : <IconBaselineDensitySmall size={18} />}
      </ActionIcon>
    </Tooltip>
  )
}
