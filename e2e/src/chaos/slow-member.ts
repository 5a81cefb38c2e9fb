// A member whose machine is busy, then asleep, then back: first it gets a quarter of the time, then none for longer than its
// silence is borne, then all of it again. Beside it, for comparison, a member whose sockets close.
import type { RunView } from '@starling-grid/protocol'
import type { Grid } from '../grid.ts'
import type { Child } from '../processes.ts'
import { type Blow, faultNow, goesOn, namesInRing, rounded, type Slowness, type Struck, workingVolunteer } from './scenario.ts'
import { killVolunteer } from './kills.ts'

/** ms that it runs, and that it is stopped, in turns */
const RUNS_MS = 20
const STOPPED_MS = 80
/** Steps with the slow member: enough for the moving average of its speed to follow. */
const SLOW_STEPS = 50

export async function slowMember(grid: Grid, blow: Blow): Promise<Struck> {
  const victim = workingVolunteer(grid, blow.random)
  const slowness = await slowDown(grid, victim)
  blow.say(`  ${victim.name} fell from ${slowness.before} to ${slowness.slowed} of the others' speed; now it sleeps`)
  const silent = faultNow(grid, 'silent')
  victim.kill('SIGSTOP')
  await goesOn(grid, silent)
  await grid.watch.waitFor(`${victim.name} to be counted as gone`, ({ run }) => run?.phase === 'finished' || (run !== undefined && !run.members.some(({ name }) => name === victim.name)))
  victim.kill('SIGCONT')
  await grid.watch.waitFor(`${victim.name} back in the ring`, ({ run }) => run?.phase === 'finished' || namesInRing(run).has(victim.name))
  blow.say(`  ${victim.name} woke up and is back`)
  const { faults } = await killVolunteer(grid, blow)
  return { faults: [silent, ...faults], slowness }
}

async function slowDown({ watch }: Grid, victim: Child): Promise<Slowness> {
  const before = relativeSpeed(watch.run, victim.name)
  const { v } = watch.run?.version ?? { v: 0 }
  const throttle = new Throttle(victim)
  try {
    await watch.waitFor('steps with a slow member', ({ run }) => run?.phase === 'finished' || (run?.version.v ?? 0) >= v + SLOW_STEPS)
    return { before, slowed: relativeSpeed(watch.run, victim.name) }
  } finally {
    throttle.stop()
  }
}

function relativeSpeed(run: RunView | undefined, name: string): number {
  const ring = (run?.members ?? []).filter(({ position }) => position !== null)
  const others = ring.filter((member) => member.name !== name)
  const mean = others.reduce((sum, { samplesPerSecond }) => sum + samplesPerSecond, 0) / Math.max(others.length, 1)
  return rounded((ring.find((member) => member.name === name)?.samplesPerSecond ?? 0) / Math.max(mean, 1e-9))
}

/** A process that runs a part of the time only. */
class Throttle {
  readonly #child: Child
  #timer: ReturnType<typeof setTimeout>

  constructor(child: Child) {
    this.#child = child
    this.#timer = setTimeout(() => this.#halt(), RUNS_MS)
  }

  #halt(): void {
    this.#child.kill('SIGSTOP')
    this.#timer = setTimeout(() => this.#resume(), STOPPED_MS)
  }

  #resume(): void {
    this.#child.kill('SIGCONT')
    this.#timer = setTimeout(() => this.#halt(), RUNS_MS)
  }

  stop(): void {
    clearTimeout(this.#timer)
    this.#child.kill('SIGCONT')
  }
}
