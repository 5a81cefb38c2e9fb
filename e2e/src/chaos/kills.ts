// Processes that are killed as a power cut would: volunteers in the middle of their work, and the coordinator.
import type { Grid } from '@starling-grid/cli'
import { type Injection, faultNow, goesOn, type InjectionResult, workingVolunteer } from './scenario.ts'

export async function killVolunteer(grid: Grid, { random, executor }: Injection): Promise<InjectionResult> {
  const victim = workingVolunteer(grid, random)
  const fault = faultNow(grid, 'closed')
  victim.kill('SIGKILL')
  await victim.ended
  grid.addVolunteer({ executor })
  await goesOn(grid, fault)
  return { faults: [fault] }
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
