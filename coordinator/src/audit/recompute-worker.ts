// A recomputation in its own thread: does what a volunteer does, with the volunteer's own code on the CPU. Started by
// recompute-bootstrap.mjs.
import { constants, setPriority } from 'node:os'
import { parentPort } from 'node:worker_threads'
import { outerOptimizer, parseModelSpec } from '@starling-grid/model'
import { extend, GridError, systemClock } from '@starling-grid/protocol'
import {
  Batches,
  Compute,
  createReferenceExecutor,
  LocalVersion,
  sha256Of,
  Shards,
  StepAudit,
} from '@starling-grid/volunteer'
import type { AuditTask, FollowTask, RecomputeAnswer, Recomputed, RecomputeTask } from './recompute.ts'

if (parentPort === null) throw new Error('internal: a recomputation runs in a thread of the coordinator')
const port = parentPort
port.once('message', (task: RecomputeTask) => void answerTo(task).then((answer) => port.postMessage(answer)))

async function answerTo(task: RecomputeTask): Promise<RecomputeAnswer> {
  try {
    const held = heldAt(task)
    if (task.type === 'follow') return { digest: await sha256Of(followed(task, held).encode()) }
    return await audited(task, held)
  } catch (error) {
    return { error: error instanceof Error ? error.message : String(error) }
  }
}

/** Linux lowers this thread alone; other systems would lower the whole process. */
function makeWay(): void {
  if (process.platform === 'linux') setPriority(constants.priority.PRIORITY_LOW)
}

function heldAt({ terms, from, state }: RecomputeTask): LocalVersion {
  const { optimizer, clipNorm, local } = terms
  const spec = parseModelSpec(terms.model)
  const held = new LocalVersion({ spec, optimizer, clipNorm, ...(local ? { outer: outerOptimizer(local) } : {}) })
  if (state === undefined) held.adoptInitial(from, terms.seed)
  else held.adopt(held.decode(state, from), from)
  return held
}

function followed({ records, sums }: Pick<FollowTask, 'records' | 'sums'>, held: LocalVersion): LocalVersion {
  for (const [i, record] of records.entries()) held.apply(record, extend(versionOf(held), record), sumAt(sums, i))
  return held
}

/** All but the last are followed; the last is computed again as well. */
async function audited({ terms, records, sums, shards }: AuditTask, held: LocalVersion): Promise<Recomputed> {
  makeWay()
  followed({ records: records.slice(0, -1), sums }, held)
  const last = records.at(-1)
  if (last === undefined) throw new Error('internal: an audit of no step')
  const { batchBlocks, encoding = 'f32', precision = 'f32' } = terms
  const cache = { get: async () => undefined, put: async () => undefined }
  const fetched = new Shards(terms.dataset, async (name) => shards.get(name) ?? missing(name), cache)
  const compute = new Compute(createReferenceExecutor(parseModelSpec(terms.model)), held, systemClock)
  const audit = new StepAudit({
    held,
    compute,
    batches: new Batches(terms, fetched, parseModelSpec(terms.model)),
    batchBlocks,
    isLossless: encoding === 'f32' && precision === 'f32',
  })
  const { deviation, fault, skipped } = await audit.step(last, sumAt(sums, records.length - 1))
  return { deviation, fault, skipped }
}

function versionOf({ version }: LocalVersion): NonNullable<LocalVersion['version']> {
  if (version === undefined) throw new Error('internal: a recomputation without a version')
  return version
}

function sumAt(sums: readonly Float32Array[], place: number): Float32Array {
  const sum = sums[place]
  if (sum === undefined) throw new Error('internal: a step without its sum')
  return sum
}

function missing(name: string): never {
  throw new GridError('shard-corrupt', `expected shard ${name.slice(0, 12)} among those of the recomputation, got none`)
}
