// A partition between two volunteers of a real grid: their link is cut, the run goes on, the link is restored.
import { fileURLToPath } from 'node:url'
import type { Grid, VolunteerProcessOptions } from '@starling-grid/cli'
import type { MemberView } from '@starling-grid/protocol'
import type { PartitionOrder } from '../link-faults.ts'
import { type Injection, faultNow, type InjectionResult } from './scenario.ts'

/** How volunteers are started whose links can be cut. */
export const PARTITIONED: Pick<VolunteerProcessOptions, 'entry' | 'env'> = {
  entry: fileURLToPath(new URL('../faulty-volunteer.ts', import.meta.url)),
  env: { STARLING_FAULT: 'partition' },
}

/**
 * Cuts the link between two neighbours, waits until the run goes on without it, restores it, and waits until it is used
 * again.
 */
export async function cutLink(grid: Grid, { random }: Pick<Injection, 'random'>): Promise<InjectionResult> {
  const { watch } = grid
  const ring = (watch.run?.members ?? [])
    .filter(({ rank }) => rank !== null)
    .sort((a, b) => (a.rank ?? 0) - (b.rank ?? 0))
  const rank = random() % ring.length
  const [a, b] = [ring[rank], ring[(rank + 1) % ring.length]]
  if (a === undefined || b === undefined || a === b) throw new Error('internal: a link has two ends')
  const fault = faultNow(grid, 'cut')
  tell(grid, 'cut', [a, b])
  await watch.waitFor(
    'a later generation without the cut link',
    ({ run }) => run?.phase === 'ring' && run.generation > fault.generation && run.relay.links > 0,
  )
  const { v } = watch.run?.version ?? { v: 0 }
  await watch.waitFor('a step of it', ({ run }) => (run?.version.v ?? 0) > v)
  tell(grid, 'heal', [a, b])
  await watch.waitFor(
    'the direct link again',
    ({ run }) => run?.phase === 'finished' || (run?.phase === 'ring' && run.members.every(({ relayed }) => !relayed)),
  )
  return { faults: [fault] }
}

function tell(grid: Grid, type: PartitionOrder['type'], [a, b]: readonly [MemberView, MemberView]): void {
  for (const [one, other] of [
    [a, b],
    [b, a],
  ] as const) {
    const order: PartitionOrder = { type, peer: other.id }
    grid.volunteers.find(({ name }) => name === one.name)?.process.send(order)
  }
}
