// Faults of links between members.
import type { World } from '../world.ts'
import type { FaultKind } from './faults.ts'

/** ms that a link stays cut, at most: some beyond a silence of 5 s */
const CUT_MS = 7000
/** ms within which members are cut off one after another, and as long again until they are back: below a silence */
const SWIZZLE_MS = 1200
const LATENCY_MS = 60

export const LINK_FAULTS = {
  'link-cut': {
    weight: 2,
    strike: (world) => withPair(world, (a, b) => world.air.cut(a, b, world.time.now + world.dice.between(200, CUT_MS))),
  },
  /** What is under way in one direction waits; the other end still hears (R17). */
  'link-cut-one-way': {
    weight: 2,
    strike: (world) =>
      withPair(world, (from, to) => world.air.cutOneWay(from, to, world.time.now + world.dice.between(200, CUT_MS))),
  },
  'link-broke': { weight: 2, strike: (world) => withPair(world, (a, b) => world.air.breakLink(a, b)) },
  /** Members are cut off one after another, and come back in another order. */
  swizzle: {
    weight: 2,
    strike: (world) => {
      const { dice } = world
      for (const volunteer of world.volunteers) {
        const backMs = SWIZZLE_MS + LATENCY_MS + dice.between(0, SWIZZLE_MS)
        const until = world.time.now + backMs
        world.later(dice.between(0, SWIZZLE_MS), () => {
          volunteer.wire?.stall(until)
          if (volunteer.member !== undefined) world.air.isolate(volunteer.member, until)
        })
      }
      return true
    },
  },
} as const satisfies Record<string, FaultKind>

type AirMember = World['air']['members'][number]

function withPair({ dice, air }: World, act: (a: AirMember, b: AirMember) => void): boolean {
  const [a, b] = [dice.pick(air.members), dice.pick(air.members)]
  if (a === undefined || b === undefined || a === b) return false
  act(a, b)
  return true
}
