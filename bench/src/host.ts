// What a step of GPT-2 124M costs beside the adapter: the gradient is checked, its sum hashed, and the exact update
// made (volunteer/src/generation/step.ts). Beside it each pass for itself, and PyTorch's clipping and AdamW, which hash
// nothing.
import { HashThread } from '@starling-grid/client-node'
import { gpt, type ModelSpec, parameterLayout } from '@starling-grid/model'
import { extend, genesis, jobId, sha256Of, type StepRecord } from '@starling-grid/protocol'
import { allFinite, applyUpdate, clipGlobalNorm, createOptimizerState, meanGradient } from '@starling-grid/shaders'
import { LocalVersion } from '@starling-grid/volunteer'
import { askTorch } from './libraries/torch.ts'
import { type BenchRow, type Contender, race, toAim } from './row.ts'
import type { Suite, SuiteOptions } from './suite.ts'

export const GPT2 = { blocks: 12, heads: 12, channels: 768, vocab: 50_257, context: 1024 }
export const GPT2_SHORT = { blocks: 1, heads: 2, channels: 64, vocab: 4000, context: 64 }
const OPTIMIZER = { type: 'adamw', lr: 1e-3, weightDecay: 0.1 } as const
const CLIP_NORM = 1
const TARGETS = 1024
/** ms a step, on two cores */
const AIM_MS = 200

export const hostSuite: Suite = async (options) => [await hostRow(options)]

async function hostRow(options: SuiteOptions): Promise<BenchRow> {
  const spec = gpt(options.short ? GPT2_SHORT : GPT2)
  const { total } = parameterLayout(spec)
  const sum = Float32Array.from({ length: total }, (_, i) => Math.sin(i) * TARGETS)
  const hashes = new HashThread()
  const torch = await askTorch()
  const row = {
    name: `host's part of a step, ${(total / 1e6).toFixed(1)} M parameters`,
    adapter: 'CPU',
    unit: 'ms a step',
    better: 'less',
    reach: toAim,
  } as const
  try {
    const peers: Record<string, Contender> = { 'each pass apart': passesApart(sum), aim: async () => AIM_MS }
    if (!('reason' in torch)) peers[`${torch.name} ${torch.version}, no hash`] = await torchUpdate(torch.ask, total)
    const measured = await race(row, ownStep(spec, sum, hashes), peers, options.rounds)
    return 'reason' in torch ? { ...measured, missing: { [torch.name]: torch.reason } } : measured
  } finally {
    hashes.stop()
    if (!('reason' in torch)) torch.close()
  }
}

/** As a member does it, from the gradient on the host to the next version. */
function ownStep(spec: ModelSpec, sum: Float32Array, hashes: HashThread): Contender {
  const held = new LocalVersion({ spec, optimizer: OPTIMIZER, clipNorm: CLIP_NORM })
  held.adoptInitial(genesis(jobId('bench'), 'host', 1), 1)
  return timed(async () => {
    if (!allFinite(sum)) throw new Error('internal: a gradient that is not finite')
    const hashed = hashes.digestOf(new Uint8Array(sum.buffer))
    held.prepare({ kind: 'ring', targets: TARGETS }, sum)
    const record = recordOf((held.version?.v ?? 0) + 1, await hashed)
    held.apply(record, extend(held.version ?? genesis(jobId('bench'), 'host', 1), record), sum)
  })
}

function recordOf(v: number, gradDigest: StepRecord['gradDigest']): StepRecord {
  const counts = { samples: 1, targets: TARGETS, lossSum: 1, correct: 0 }
  return { v, generation: 1, modeEpoch: 0, kind: 'ring', blocks: [], ...counts, gradDigest }
}

function passesApart(sum: Float32Array): Contender {
  const mean = new Float32Array(sum.length)
  const [parameters, next] = [new Float32Array(sum.length), new Float32Array(sum.length)]
  const [state, nextState] = [0, 1].map(() => createOptimizerState(OPTIMIZER, sum.length))
  if (!state || !nextState) throw new Error('internal: two states')
  return timed(async () => {
    if (!allFinite(sum)) throw new Error('internal: a gradient that is not finite')
    await sha256Of(new Uint8Array(sum.buffer))
    meanGradient(sum, TARGETS, mean)
    clipGlobalNorm(mean, CLIP_NORM)
    applyUpdate(OPTIMIZER, state, parameters, mean, next, nextState)
  })
}

async function torchUpdate(
  ask: (question: object) => Promise<Readonly<Record<string, unknown>>>,
  count: number,
): Promise<Contender> {
  const task = { kind: 'update', count, lr: OPTIMIZER.lr, decay: OPTIMIZER.weightDecay, clip: CLIP_NORM }
  const { id } = await ask({ ask: 'prepare', task, tensors: {} })
  return async () => Number((await ask({ ask: 'time', id, repeats: 1 }))['ms'])
}

function timed(work: () => Promise<void>): Contender {
  return async () => {
    const start = performance.now()
    await work()
    return performance.now() - start
  }
}
