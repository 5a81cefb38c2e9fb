// A recomputation in its own thread: does what a volunteer does, with the volunteer's own code on the CPU. Started by
// recompute-bootstrap.mjs.
import { constants, setPriority } from 'node:os'
import { parentPort } from 'node:worker_threads'
import { parseModelSpec } from '@starling-grid/model'
import { GridError, systemClock, sha256Of } from '@starling-grid/protocol'
import {
  Batches,
  Compute,
  followSums,
  type LocalVersion,
  Shards,
  StepAudit,
  versionFrom,
} from '@starling-grid/volunteer'
import { openBaseModel, openReferenceExecutor } from '@starling-grid/volunteer/language'
import type { AuditTask, RecomputeAnswer, Recomputed, RecomputeTask } from './recompute.ts'

if (parentPort === null) throw new Error('internal: a recomputation runs in a thread of the coordinator')
const port = parentPort
port.once('message', (task: RecomputeTask) => void answerTo(task).then((answer) => port.postMessage(answer)))

async function answerTo(task: RecomputeTask): Promise<RecomputeAnswer> {
  try {
    const held = versionFrom(task.terms, task.from, task.state)
    if (task.type === 'follow') return { digest: await sha256Of(followSums(held, task.records, task.sums).encode()) }
    return await audited(task, held)
  } catch (error) {
    return { error: error instanceof Error ? error.message : String(error) }
  }
}

/** Linux lowers this thread alone; other systems would lower the whole process. */
function makeWay(): void {
  if (process.platform === 'linux') setPriority(constants.priority.PRIORITY_LOW)
}

/** All but the last are followed; the last is computed again as well. */
async function audited({ terms, records, sums, shards }: AuditTask, held: LocalVersion): Promise<Recomputed> {
  makeWay()
  followSums(held, records.slice(0, -1), sums)
  const [last, sum] = [records.at(-1), sums[records.length - 1]]
  if (last === undefined || sum === undefined) throw new Error('internal: an audit of no step')
  const { batchBlocks, encoding = 'f32', precision = 'f32' } = terms
  const cache = { get: async () => undefined, put: async () => undefined }
  const fetched = new Shards(terms.dataset, async (name) => shards.get(name) ?? missing(name), cache)
  const spec = parseModelSpec(terms.model)
  const frozen = await openBaseModel(spec, { fetchBytes: async (name) => shards.get(name) ?? missing(name), cache })
  const compute = new Compute(await openReferenceExecutor(spec, { frozen }), held, systemClock)
  const audit = new StepAudit({
    held,
    compute,
    batches: new Batches(terms, fetched, spec),
    batchBlocks,
    isLossless: encoding === 'f32' && precision === 'f32',
  })
  const { deviation, fault, skipped } = await audit.step(last, sum)
  return { deviation, fault, skipped }
}

function missing(name: string): never {
  throw new GridError('shard-corrupt', `expected shard ${name.slice(0, 12)} among those of the recomputation, got none`)
}
