import type { Child, Grid } from '@starling-grid/cli'
// A member whose machine is busy, then asleep, then back. First it gets a fifth of the time, until its share of a step
// has followed. Then it gets none for longer than its silence is borne, then all of it again. Beside it, for
// comparison, a member whose sockets close.
import type { RunView } from '@starling-grid/protocol'
import { killVolunteer } from './kills.ts'
import {
  type Injection,
  faultNow,
  goesOn,
  medianPause,
  namesInRing,
  rounded,
  type Slowness,
  type InjectionResult,
  workingVolunteer,
} from './scenario.ts'

/** ms that it runs, and that it is stopped, in turns: short beside any silence that members notice */
const RUNS_MS = 20
const STOPPED_MS = 80
/**
 * Of its share before, what is left at most: with a fifth of the time, and others that have more of the machine, less
 * remains.
 */
const FALLEN = 0.7
/** Steps whose median pause is told, from before and from when the share had followed. */
const COMPARED_STEPS = 20

export async function slowMember(grid: Grid, blow: Injection): Promise<InjectionResult> {
  const victim = workingVolunteer(grid, blow.random)
  const slowness = await slowDown(grid, victim)
  if (slowness !== undefined)
    blow.say(
      `  ${victim.name} fell from ${slowness.speed.before} to ${slowness.speed.slowed} of the others' speed, ` +
        `and from ${slowness.fraction.before} to ${slowness.fraction.slowed} of a step; now it sleeps`,
    )
  const silent = faultNow(grid, 'silent')
  victim.kill('SIGSTOP')
  await goesOn(grid, silent)
  await grid.watch.waitFor(
    `${victim.name} to be counted as gone`,
    ({ run }) =>
      run?.phase === 'finished' || (run !== undefined && !run.members.some(({ name }) => name === victim.name)),
  )
  victim.kill('SIGCONT')
  await grid.watch.waitFor(
    `${victim.name} back in the ring`,
    ({ run }) => run?.phase === 'finished' || namesInRing(run).has(victim.name),
  )
  blow.say(`  ${victim.name} woke up and is back`)
  // a quick machine: no volunteer is left to be killed
  if (grid.watch.run?.phase === 'finished') return { faults: [silent], ...(slowness === undefined ? {} : { slowness }) }
  const { faults } = await killVolunteer(grid, blow)
  return { faults: [silent, ...faults], ...(slowness === undefined ? {} : { slowness }) }
}

/** Until its share has followed its speed, and some steps more. Undefined: the run ended before. */
async function slowDown({ watch }: Grid, victim: Child): Promise<Slowness | undefined> {
  const before = measured(watch, victim.name)
  const began = Date.now()
  const throttle = new Throttle(victim)
  try {
    const followed = await watch.waitFor(
      `the share of ${victim.name} to follow its speed`,
      ({ run }) =>
        run?.phase === 'finished' || (hasFollowed(run, victim.name, before.fraction) && (run?.version.v ?? 0)),
    )
    if (followed === true) return undefined
    const secondsToFollow = rounded((Date.now() - began) / 1000)
    await watch.waitFor(
      'steps with that share',
      ({ run }) => run?.phase === 'finished' || (run?.version.v ?? 0) >= followed + COMPARED_STEPS,
    )
    const slowed = measured(watch, victim.name)
    return {
      speed: { before: before.speed, slowed: slowed.speed },
      fraction: { before: before.fraction, slowed: slowed.fraction, others: slowed.others },
      stepMs: { before: before.stepMs, slowed: slowed.stepMs },
      secondsToFollow,
    }
  } finally {
    throttle.stop()
  }
}

/** Smaller than every other's, and than it was. */
function hasFollowed(run: RunView | undefined, name: string, before: number): boolean {
  const { fraction, others } = fractionsIn(run, name)
  return fraction < others && fraction < FALLEN * before
}

function measured(
  { run, steps }: Grid['watch'],
  name: string,
): { readonly speed: number; readonly fraction: number; readonly others: number; readonly stepMs: number } {
  const { fraction, others } = fractionsIn(run, name)
  return {
    speed: relativeSpeed(run, name),
    fraction: rounded(fraction),
    others: rounded(others),
    stepMs: medianPause(steps.slice(-COMPARED_STEPS)),
  }
}

/** Its part of a step, and the smallest of the others in its ring. */
function fractionsIn(run: RunView | undefined, name: string): { readonly fraction: number; readonly others: number } {
  const ring = (run?.members ?? []).flatMap((member) =>
    member.fraction === null ? [] : [{ name: member.name, fraction: member.fraction }],
  )
  const others = ring.filter((member) => member.name !== name).map(({ fraction }) => fraction)
  return { fraction: ring.find((member) => member.name === name)?.fraction ?? Number.NaN, others: Math.min(...others) }
}

function relativeSpeed(run: RunView | undefined, name: string): number {
  const ring = (run?.members ?? []).filter(({ rank }) => rank !== null)
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
