// Faults of coordinators: they die, also between two effects of a decision, are replaced, and change their job.
import type { World } from '../world.ts'
import type { FaultKind } from './faults.ts'

/** ms after which a displaced coordinator has looked at the card of its folder, at most */
const CARD_MS = 15_000
/** ms without a network */
const OUTAGE_MS = [5000, 30_000] as const
/** writes and messages until a coordinator dies */
const MOST_MOMENTS = 12
/** further jobs of a grid, and their shapes: epochs, blocks in each, blocks in a batch */
const MOST_JOBS = 2
const SHAPES = [
  [1, 6, 3],
  [1, 4, 1],
  [2, 5, 5],
] as const

export const COORDINATOR_FAULTS = {
  'coordinator-killed': {
    weight: 3,
    strike: (world) => {
      const { coordinator } = world
      if (coordinator === undefined || coordinator.clock.isDead) return false
      world.crashCoordinator(coordinator)
      return true
    },
  },
  'crash-between-effects': {
    weight: 4,
    waits: true,
    strike: ({ coordinator, faults, dice }) => {
      if (coordinator?.isOpen !== true) return false
      faults.doom(coordinator, dice.between(1, MOST_MOMENTS))
      return true
    },
  },
  takeover: {
    weight: 1,
    strike: (world) => {
      const displaced = world.coordinator
      if (displaced?.isOpen !== true) return false
      world.startCoordinator()
      world.later(world.dice.between(0, CARD_MS), () => displaced.displaced())
      return true
    },
  },
  'network-outage': {
    weight: 1,
    strike: (world) => {
      world.noNetworkUntil = world.time.now + world.dice.between(...OUTAGE_MS)
      for (const volunteer of world.volunteers) volunteer.loseSocket()
      return true
    },
  },
  'job-switch': {
    weight: 2,
    strike: async (world) => world.runs.size <= MOST_JOBS && world.submit(anotherJob(world)),
  },
} as const satisfies Record<string, FaultKind>

/** In local rounds each block is a batch of its own (members.ts). */
function anotherJob({ dice, scenario: { shape } }: World): World['scenario']['shape'] {
  const [epochs, blocks, batchBlocks] = dice.pick(SHAPES) ?? SHAPES[0]
  const batch = shape.mode === 'local' ? 1 : batchBlocks
  const volunteers = { ...shape.volunteers, ...(dice.chance(0.3) ? { max: dice.between(2, 3) } : {}) }
  return { ...shape, volunteers, priority: dice.below(3), seed: dice.below(1000), epochs, blocks, batchBlocks: batch }
}
