// Processes that are killed as a power cut would: volunteers in the middle of their work, and the coordinator.
import type { Grid } from '@starling-grid/cli'
import type { JobSpec } from '@starling-grid/protocol'
import {
  type InjectedFault,
  type Injection,
  faultNow,
  goesOn,
  type InjectionResult,
  workingVolunteer,
} from './scenario.ts'

export async function killVolunteer(grid: Grid, { random, executor }: Injection): Promise<InjectionResult> {
  const victim = workingVolunteer(grid, random)
  const fault = faultNow(grid, 'closed')
  victim.kill('SIGKILL')
  await victim.ended
  grid.addVolunteer({ executor })
  await goesOn(grid, fault)
  return { faults: [fault] }
}

/** Each member is a group of its own, and makes some inner steps before it pushes. */
export const GROUPED: Pick<JobSpec, 'mode' | 'groups'> = { mode: 'async', groups: { innerSteps: 4 } }
/** Of the members that compute, so many die at once. */
const GROUP_SHARE = 1 / 3

/** A third of all members in the middle of a round: what they learned is gone, and others train its blocks. */
export async function killGroup(grid: Grid, { random, executor, say }: Injection): Promise<InjectionResult> {
  const { names, fault } = await killInRound(grid, random)
  const { version } = fault
  say(`  ${names.join(', ')} died in the round after version ${version}`)
  for (const _ of names) grid.addVolunteer({ executor })
  await grid.watch.waitFor(
    'two versions after it',
    ({ run }) => run?.phase === 'finished' || (run?.version.v ?? 0) >= version + 2,
  )
  return { faults: [fault] }
}

interface KilledInRound {
  readonly names: readonly string[]
  readonly fault: InjectedFault & { readonly version: number }
}

/** Returns when the processes of a third of all members have ended. */
export async function killInRound(grid: Grid, random: () => number): Promise<KilledInRound> {
  const { watch } = grid
  const atWork = await watch.waitFor('a round in which half of the members compute', ({ run }) => {
    const computing = run?.members.filter(({ state }) => state === 'training') ?? []
    return run?.phase === 'async' && 2 * computing.length >= run.members.length ? computing : undefined
  })
  const working = new Set(atWork.map(({ name }) => name))
  const alive = grid.volunteers.filter((child) => child.alive() && working.has(child.name))
  const victims = chosen(alive, Math.max(1, Math.round(GROUP_SHARE * alive.length)), random)
  const fault = { ...faultNow(grid, 'group'), version: watch.run?.version.v ?? 0 }
  for (const victim of victims) victim.kill('SIGKILL')
  await Promise.all(victims.map((victim) => victim.ended))
  return { names: victims.map(({ name }) => name), fault }
}

function chosen<T>(items: readonly T[], count: number, random: () => number): T[] {
  const left = [...items]
  return Array.from({ length: Math.min(count, left.length) }, () => left.splice(random() % left.length, 1)).flat()
}

export async function killCoordinator(grid: Grid, { say }: Injection): Promise<InjectionResult> {
  const fault = faultNow(grid, 'coordinator')
  await grid.killCoordinator()
  await grid.restartCoordinator()
  const listening = Date.now()
  await goesOn(grid, fault)
  const next = grid.watch.steps.find(({ at }) => at > listening)?.at ?? Date.now()
  say(
    `  it listened after ${seconds(listening - fault.at)} s, ` +
      `and the next step was committed ${seconds(next - listening)} s later`,
  )
  return { faults: [fault] }
}

function seconds(ms: number): string {
  return (ms / 1000).toFixed(1)
}
