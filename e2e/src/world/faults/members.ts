// Faults of members: processes that die, leave, sleep or hang, sockets that break, and members that are not what they
// say.
import { type ToCoordinator, trainingBlock } from '@starling-grid/protocol'
import type { Temper, VolunteerProcess } from '../volunteer-process.ts'
import type { World } from '../world.ts'
import type { FaultKind } from './faults.ts'
import { keepForeignState, keepInventedStep } from './kept.ts'

/** ms until a member that died is there again, at most; of some it is longer than T_lost (R6) */
const RETURN_MS = 8000
const LONG_ABSENCE_MS = 40_000
const LONG_ABSENCES = 0.25
/** ms: shorter and longer than what others bear of silence, and of a stalled step (stallMs) */
const SLEEP_MS = [500, 14_000] as const
const STUCK_MS = [5000, 30_000] as const
const CUT_OFF_MS = [1000, 30_000] as const
/** Messages that a socket breaks at: the worst moments of an exchange. */
const MOMENTS = [
  'state',
  'state',
  'confirm',
  'confirm',
  'held',
  'abort',
  'ready',
  'prefetched',
] as const satisfies ToCoordinator['type'][]
/** One that opens no link at all is drawn for the whole seed (members.ts). */
const ODD: readonly Temper[] = ['mute', 'wrong']

export const MEMBER_FAULTS = {
  'member-killed': {
    weight: 4,
    strike: (world) => withMember(world, (victim) => killed(world, victim)),
  },
  'member-leaves': {
    weight: 1,
    strike: (world) => withMember(world, (victim) => leaves(world, victim)),
  },
  'all-members-killed': {
    weight: 1,
    strike: (world) => {
      for (const victim of world.volunteers) killed(world, victim)
      if (world.coordinator !== undefined && world.dice.chance(0.3)) world.crashCoordinator(world.coordinator)
      return true
    },
  },
  'member-stands-still': {
    weight: 3,
    strike: (world) => withMember(world, ({ clock }) => clock.standStill(duration(world, SLEEP_MS))),
  },
  'member-stuck': {
    weight: 2,
    strike: (world) =>
      withMember(world, (victim) => {
        victim.stuckUntil = world.time.now + duration(world, STUCK_MS)
      }),
  },
  'member-slow': {
    weight: 2,
    strike: (world) =>
      withMember(world, (victim) => {
        victim.slowUntil = world.time.now + duration(world, STUCK_MS)
      }),
  },
  'socket-lost': {
    weight: 4,
    strike: (world) =>
      withMember(
        world,
        (victim) => victim.loseSocket(),
        ({ isConnected }) => isConnected,
      ),
  },
  'socket-lost-in-exchange': {
    weight: 3,
    waits: true,
    strike: (world) => withMember(world, (victim) => world.faults.breakAt(victim, world.dice.pick(MOMENTS) ?? 'state')),
  },
  'all-sockets-lost': {
    weight: 2,
    strike: (world) => {
      for (const volunteer of world.volunteers) volunteer.loseSocket()
      return true
    },
  },
  'downloads-lost': {
    weight: 1,
    strike: (world) =>
      withMember(world, (victim) => {
        victim.cutOffUntil = world.time.now + duration(world, CUT_OFF_MS)
      }),
  },
  'spurious-abort': {
    weight: 3,
    strike: (world) =>
      withMember(
        world,
        (victim) => aborts(world, victim),
        (one) => world.observer.ringOf(one) !== undefined,
      ),
  },
  // Once or twice it is chance; twelve times it is the block (it is set aside in async mode).
  'bad-gradient': {
    weight: 1,
    strike: (world) => {
      const { epochs, blocks } = world.scenario.shape
      const block = trainingBlock(world.dice.below(epochs), world.dice.below(blocks))
      world.faults.poison(block, world.dice.pick([1, 2, 12]))
      return true
    },
  },
  'odd-newcomer': {
    weight: 2,
    strike: (world) => {
      if (world.scenario.defect !== undefined && world.volunteers.length > world.scenario.seats) return false
      const seat = world.scenario.seats + world.faults.struck.filter((fault) => fault === 'odd-newcomer').length
      world.arrive(seat, world.dice.pick(ODD) ?? 'mute')
      return true
    },
  },
  'false-claim': {
    weight: 2,
    strike: (world) => comesBackWith(world, keepInventedStep, 'liar'),
  },
  'state-of-another-run': {
    weight: 2,
    strike: (world) => comesBackWith(world, keepForeignState, 'honest'),
  },
} as const satisfies Record<string, FaultKind>

export function withMember(
  { dice, volunteers }: World,
  act: (volunteer: VolunteerProcess) => void,
  suits: (volunteer: VolunteerProcess) => boolean = () => true,
): boolean {
  const victim = dice.pick(volunteers.filter(suits))
  if (victim === undefined) return false
  act(victim)
  return true
}

function duration({ dice }: World, [least, most]: readonly [number, number]): number {
  return dice.between(least, most)
}

function absence({ dice }: World): number {
  return dice.chance(LONG_ABSENCES) ? LONG_ABSENCE_MS : dice.between(0, RETURN_MS)
}

function killed(world: World, victim: VolunteerProcess): void {
  victim.kill()
  world.later(absence(world), () => world.arriveInPlaceOf(victim))
}

/** A process waits until it may go; a tab is gone at once. */
function leaves(world: World, victim: VolunteerProcess): void {
  victim.leave()
  if (world.dice.chance(0.5)) killed(world, victim)
  // what does not end by itself is killed
  else world.later(RETURN_MS, () => victim.isAlive && killed(world, victim))
}

/** It, or another one of its ring, is blamed for nothing. */
function aborts({ dice, observer }: World, victim: VolunteerProcess): void {
  const ring = observer.ringOf(victim)
  if (ring === undefined) return
  const { job, fence, generation, members, step } = ring
  const others = members.filter((id) => id !== victim.member)
  const blamed = dice.pick([null, ...others]) ?? null
  const why =
    blamed === null ? 'stalled' : (dice.pick(['unopened', 'closed', 'silent', 'stalled'] as const) ?? 'stalled')
  const links = blamed === null || why === 'stalled' ? [] : [blamed]
  victim.forge({
    type: 'abort',
    job,
    fence,
    generation,
    step,
    blamed,
    why,
    links,
    code: 'reduce-timeout',
    message: 'for no reason',
  })
}

/** Its process dies; the next one at its seat finds this state in its cache. */
async function comesBackWith(
  world: World,
  keep: (world: World, volunteer: VolunteerProcess) => Promise<boolean>,
  temper: Temper,
): Promise<boolean> {
  const victim = world.dice.pick(world.volunteers.filter(({ temper: own }) => own === 'honest'))
  if (victim === undefined || !(await keep(world, victim))) return false
  victim.kill()
  world.later(world.dice.between(0, RETURN_MS), () => world.arriveInPlaceOf(victim, temper))
  return true
}
