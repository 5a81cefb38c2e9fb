// Faults of the data folder: a disk that fails for a while, missing or damaged files, a backup instead of the folder.
import type { World } from '../world.ts'
import type { FaultKind } from './faults.ts'

/** ms that a disk is full or gone, and that a file of the dataset is damaged */
const DISK_MS = [500, 9000] as const
const SHARD_MS = [1000, 30_000] as const
/** rows that a backup may lack, and ms until it is put back: more than the second that fences count in */
const MOST_ROWS_LOST = 30
const RESTORE_MS = [2000, 6000] as const

export const FILE_FAULTS = {
  'disk-fails': {
    weight: 2,
    strike: (world) => {
      world.disk.failsUntil = world.time.now + world.dice.between(...DISK_MS)
      return true
    },
  },
  'checkpoint-damaged': { weight: 2, strike: (world) => damageCheckpoint(world) },
  'shard-damaged': {
    weight: 1,
    strike: (world) => {
      const run = world.dice.pick([...world.runs.values()].filter(({ finished }) => !finished))
      const shard = world.dice.pick([...(run?.job.shards.keys() ?? [])])
      if (shard === undefined) return false
      world.later(world.dice.between(...SHARD_MS), world.disk.damage(shard))
      return true
    },
  },
  'backup-restored': { weight: 1, strike: (world) => restoreBackup(world) },
} as const satisfies Record<string, FaultKind>

/** The bytes of the newest one are gone, or others. */
function damageCheckpoint({ coordinator, disk, dice, runs }: World): boolean {
  const host = coordinator?.runs.current()
  const newest = host?.state.checkpoints.at(-1)
  if (host === undefined || newest?.blob === undefined) return false
  if (runs.get(host.job.id)?.chronicle.hasCheckpoint(newest.version) !== true) return false
  if (dice.chance(0.5)) disk.kept.delete(newest.blob)
  else disk.damage(newest.blob)
  return true
}

/** Coordinators die, and the next one reads the folder as it was some rows ago. */
async function restoreBackup(world: World): Promise<boolean> {
  const rows = world.disk.rowsSinceJob
  if (world.coordinator?.isOpen !== true || rows < 2) return false
  world.killCoordinators()
  await world.disk.restore(world.dice.between(1, Math.min(rows - 1, MOST_ROWS_LOST)))
  for (const run of world.runs.values()) run.restored()
  world.observer.restored()
  world.later(world.dice.between(...RESTORE_MS), () => world.startCoordinator())
  return true
}
