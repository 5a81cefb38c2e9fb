// States that a member finds in its cache and that no ring of its run made. It made a step up, or has the state of
// another run under the name of this one.
import type { RunState } from '@starling-grid/coordinator/run'
import { encodeVersionState, initialVersionState } from '@starling-grid/model'
import {
  type BlockId,
  type Claim,
  digest,
  extend,
  genesis,
  jobId,
  type StepRecord,
  trainingBlock,
  type VersionRef,
} from '@starling-grid/protocol'
import { KeptState } from '@starling-grid/volunteer/testing'
import { cacheIn, type VolunteerProcess } from '../volunteer-process.ts'
import type { WatchedRun } from '../watched-run.ts'
import type { World } from '../world.ts'

/** On top of the committed version: it looks like any other claim. False: nothing is left to train, or no ring did. */
export async function keepInventedStep(world: World, { seat, cache }: VolunteerProcess): Promise<boolean> {
  const host = world.coordinator?.runs.current()
  const run = host && world.runs.get(host.job.id)
  if (host === undefined || run === undefined || host.state.mode === 'async') return false
  const { head } = run.chronicle
  const generation = [...host.state.rings.keys()].at(-1)
  const blocks = undone(host.state).slice(0, host.state.config.batchBlocks)
  if (generation === undefined || blocks.length === 0 || head.id !== host.state.chain.head.id) return false
  const record = { ...madeUp(head, host.state, { generation, blocks }), ...scalingOf(world, host.state, generation) }
  const version = extend(head, record)
  run.ledger.record(head, record, version)
  const parameters = run.ledger.parametersOf(version)
  if (parameters === undefined) return false
  world.observer.invented.set(version.id, seat)
  await keep(run, cache, { version, parameters, claim: { base: head, records: [record] } })
  return true
}

/** In a job whose batch follows the ring: as its plan has it, or with a rate of its own. */
function scalingOf(
  { dice }: World,
  { config, rings, chain }: RunState,
  generation: number,
): Pick<StepRecord, 'scaling'> {
  const { weak, batchBlocks } = config
  if (weak === undefined) return {}
  const times = rings.get(generation)?.length ?? 1
  const before = chain.record(chain.head.v)?.scaling?.scale ?? 1
  const honest = Math.min(times, weak.warmup === 0 ? times : before + times / weak.warmup)
  const scale = dice.chance(0.5) ? honest : 2 * honest
  return { scaling: { batch: times * batchBlocks, scale, lr: scale * weak.optimizer.lr } }
}

/** Of a run with the same model, seed and blocks under another id. */
export async function keepForeignState(world: World, { cache }: VolunteerProcess): Promise<boolean> {
  const host = world.coordinator?.runs.current()
  const run = host && world.runs.get(host.job.id)
  if (host === undefined || run === undefined) return false
  const { form, spec, stored } = run.job
  const base = genesis(jobId(`${stored.id}-elsewhere`), host.job.terms.modelHash, spec.seed)
  const record = madeUp(base, host.state, { generation: 1, blocks: [trainingBlock(0, 0)] })
  const { parameters } = initialVersionState(form.spec, form.optimizer, spec.seed)
  await keep(run, cache, { version: extend(base, record), parameters, claim: { base, records: [record] } })
  return true
}

async function keep(
  { job }: WatchedRun,
  cache: Map<string, Uint8Array>,
  {
    version,
    parameters,
    claim,
  }: { readonly version: VersionRef; readonly parameters: Float32Array; readonly claim: Claim },
): Promise<void> {
  const { form, spec, stored } = job
  const state = { ...initialVersionState(form.spec, form.optimizer, spec.seed), parameters }
  await new KeptState(cacheIn(cache), stored.id, { now: () => 0 }).keep({
    state: encodeVersionState({ ...form, ...state, version }),
    claim,
  })
}

/** Of the first epoch that is not complete. */
export function undone({ chain, config }: RunState): BlockId[] {
  for (let epoch = 0; epoch < config.epochs; epoch++) {
    const blocks = Array.from({ length: config.blocks }, (_, index) => trainingBlock(epoch, index))
    const left = blocks.filter((block) => !chain.isDone(block))
    if (left.length > 0) return left
  }
  return []
}

export function madeUp(
  parent: VersionRef,
  { mode, modeEpoch }: RunState,
  { generation, blocks }: { readonly generation: number; readonly blocks: readonly BlockId[] },
): StepRecord {
  return {
    v: parent.v + 1,
    generation,
    modeEpoch,
    kind: mode === 'local' ? 'round' : 'ring',
    blocks: [...blocks],
    samples: blocks.length,
    targets: blocks.length,
    lossSum: 0,
    correct: 0,
    gradDigest: digest(new TextEncoder().encode(`made up ${blocks.join()}`)),
  }
}
