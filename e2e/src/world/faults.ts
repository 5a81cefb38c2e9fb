// What goes wrong in a simulated grid: each draws its victim and its time, and is repaired by itself.
import type { World } from './world.ts'

/** ms until a member or coordinator that died is there again, at most */
const RETURN_MS = 8000
/** ms that a link stays cut, a disk fails, a member stands still, at most: some beyond a silence of 5 s */
const CUT_MS = 7000

/** ms after which a displaced coordinator has looked at the card of its folder */
const CARD_MS = 1000

const FAULTS = {
  'member-killed': (world: World) => {
    const victim = world.dice.pick(world.volunteers)
    victim?.kill()
    if (victim !== undefined) world.later(world.dice.between(500, RETURN_MS), () => world.arrive(victim.seat))
  },
  'member-leaves': (world: World) => {
    const victim = world.dice.pick(world.volunteers)
    victim?.leave()
    if (victim !== undefined)
      world.later(RETURN_MS + world.dice.between(500, RETURN_MS), () => {
        if (victim.isAlive) victim.kill()
        world.arrive(victim.seat)
      })
  },
  'member-stands-still': (world: World) => {
    world.dice.pick(world.volunteers)?.clock.standStill(world.dice.between(500, 2 * CUT_MS))
  },
  'socket-lost': (world: World) => world.dice.pick(world.volunteers)?.loseSocket(),
  'all-sockets-lost': (world: World) => {
    for (const volunteer of world.volunteers) volunteer.loseSocket()
  },
  'link-cut': (world: World) => {
    const { dice, air } = world
    const [a, b] = [dice.pick(air.members), dice.pick(air.members)]
    if (a !== undefined && b !== undefined && a !== b) air.cut(a, b, world.time.now + dice.between(200, CUT_MS))
  },
  'all-members-killed': (world: World) => {
    for (const victim of world.volunteers) {
      victim.kill()
      world.later(world.dice.between(500, RETURN_MS), () => world.arrive(victim.seat))
    }
  },
  'coordinator-killed': (world: World) => {
    const { coordinator } = world
    coordinator?.kill()
    for (const volunteer of world.volunteers) volunteer.loseSocket()
    world.later(world.dice.between(100, RETURN_MS), () => world.coordinator === coordinator && world.startCoordinator())
  },
  takeover: (world: World) => {
    const displaced = world.coordinator
    world.startCoordinator()
    world.later(CARD_MS, () => displaced?.displaced())
  },
  'disk-fails': (world: World) => {
    world.disk.failsUntil = world.time.now + world.dice.between(200, CUT_MS)
  },
} as const

export type GridFault = keyof typeof FAULTS
export const GRID_FAULTS = Object.keys(FAULTS) as GridFault[]

/** One of them, now. */
export function gridFault(world: World): GridFault {
  const fault = world.dice.pick(GRID_FAULTS) ?? 'socket-lost'
  FAULTS[fault](world)
  return fault
}
