// Members of a ring at a bench: real GenerationRunner, links in memory, reduce and optimizer. A test gives a
// coordinator's orders by hand. It can hold up a computation or a download for as long as it needs. Used by
// ring-gradients.test.ts.
import assert from 'node:assert/strict'
import { outerOptimizer, type ModelSpec } from '@starling-grid/model'
import {
  type BlockId,
  blockIndex,
  extend,
  genesis,
  type GradientEncoding,
  jobId,
  type MemberId,
  memberId,
  type MessageFrom,
  type StepRecord,
  type ToCoordinator,
  trainingBlock,
  type VersionRef,
  systemClock,
  sha256Of,
} from '@starling-grid/protocol'
import { Compute, createReferenceExecutor, type Executor, LocalVersion } from '@starling-grid/volunteer'
import { formOf } from '@starling-grid/volunteer/testing'
import type { Batches } from '../src/data/batch.ts'
import { GenerationRunner } from '../src/generation/generation-runner.ts'
import type { Batch, EarlyRanges } from '../src/graph/executor.ts'
import { MemoryGrid } from '../src/link/memory-link.ts'
import { openLocalRounds } from '../src/local/local-round.ts'
import type { ControlMessage } from '../src/member/member-state.ts'
import { createMember } from '../src/member/member.ts'
import { UploadShare } from '../src/recovery/upload-share.ts'

export const ZERO = genesis(jobId('job'), 'hash', 7)
export const [A, B] = [memberId('a'), memberId('b')]
export const BLOCKS = [0, 1, 2, 3].map((i) => trainingBlock(0, i))
export const BLOCK_SAMPLES = 4
const OWNER = 1
export const BENCH_OPTIMIZER = { type: 'sgd', lr: 0.1, momentum: 0.9 } as const
const ROUNDS = { innerSteps: 2, outerLr: 0.7, outerMomentum: 0.9 } as const

/** Something that waits until it is let go. */
export class Gate {
  readonly arrived: Promise<void>
  #arrive: () => void = () => undefined
  open: () => void = () => undefined
  readonly #opened: Promise<void>

  constructor() {
    this.arrived = new Promise((resolve) => {
      this.#arrive = resolve
    })
    this.#opened = new Promise((resolve) => {
      this.open = resolve
    })
  }

  pass(): Promise<void> {
    this.#arrive()
    return this.#opened
  }
}

/** Computes at once, and writes the gradient back when it is let: in place of a GPU that takes its time. */
export class GatedExecutor implements Executor {
  readonly adapter
  readonly #inner: Executor
  #gates: Gate[] = []
  /** first inputs of the batches that were computed, in order */
  readonly computed: number[] = []
  readonly written: number[] = []

  constructor(inner: Executor) {
    this.#inner = inner
    this.adapter = inner.adapter
  }

  /** The next computation's result is held up. */
  hold(): Gate {
    const gate = new Gate()
    this.#gates.push(gate)
    return gate
  }

  loadParameters(flat: Float32Array): void {
    this.#inner.loadParameters(flat)
  }

  async gradient(batch: Batch, into: Float32Array, early?: EarlyRanges) {
    const gate = this.#gates.shift()
    this.computed.push(batch.x[0] ?? 0)
    const result = new Float32Array(into.length)
    const sums = await this.#inner.gradient(batch, result)
    await gate?.pass()
    if (early === undefined) into.set(result)
    for (const [index, { start, end }] of (early?.ranges ?? []).entries()) {
      into.set(result.subarray(start, end), start)
      early?.onFinal(index)
    }
    this.written.push(batch.x[0] ?? 0)
    return sums
  }

  evaluate(batch: Batch) {
    return this.#inner.evaluate(batch)
  }

  predict(x: Batch['x'], samples: number) {
    return this.#inner.predict(x, samples)
  }

  destroy(): void {
    this.#inner.destroy()
  }
}

/** Any numbers, another for each block. */
export function batchOf(spec: ModelSpec, blocks: readonly BlockId[]): Batch {
  const [inputs = 0] = spec.input
  const samples = blocks.length * BLOCK_SAMPLES
  const numbers = blocks.flatMap((block) =>
    Array.from({ length: BLOCK_SAMPLES * inputs }, (_, i) => Math.sin(i + 1 + 13 * blockIndex(block))),
  )
  return {
    samples,
    x: Float32Array.from(numbers),
    y: Int32Array.from({ length: samples }, (_, i) => i % 2),
    groups: blocks.map(() => BLOCK_SAMPLES),
  }
}

export interface BenchOptions {
  readonly spec: ModelSpec
  readonly encoding?: GradientEncoding
  /** absent: steps; otherwise local rounds in so many fragments */
  readonly fragments?: number
  /** samples per second, as the members believe: slow ones compute their assignment in pieces */
  readonly speed?: number
  readonly wrap?: (executor: GatedExecutor) => Executor
}

export class BenchMember {
  readonly core
  readonly held: LocalVersion
  readonly compute: Compute
  readonly executor: GatedExecutor
  readonly ring: GenerationRunner
  readonly sent: ToCoordinator[] = []
  readonly sums: { readonly version: VersionRef; readonly bytes: Uint8Array }[] = []
  readonly failed: unknown[] = []
  readonly batches: Pick<Batches, 'blockSamples' | 'blockTargets' | 'of' | 'ahead' | 'isLoading'>
  /** hashes the sum of a step */
  hashing = sha256Of
  #downloads: Gate[] = []

  constructor(
    id: MemberId,
    grid: MemoryGrid,
    { spec, encoding = 'f32', fragments, speed = 1e9, wrap = (executor) => executor }: BenchOptions,
  ) {
    const outer = fragments === undefined ? {} : { outer: outerOptimizer(ROUNDS) }
    this.held = new LocalVersion({ spec, optimizer: BENCH_OPTIMIZER, clipNorm: undefined, ...outer })
    this.core = createMember(id, ZERO)
    this.executor = new GatedExecutor(createReferenceExecutor(spec))
    this.compute = new Compute(wrap(this.executor), this.held, systemClock)
    // whatever this machine measures
    Object.defineProperty(this.compute, 'samplesPerSecond', { get: () => speed, set() {} })
    const batch = async (blocks: readonly BlockId[]): Promise<Batch> => {
      await this.#downloads.shift()?.pass()
      return batchOf(spec, blocks)
    }
    this.batches = {
      blockSamples: BLOCK_SAMPLES,
      blockTargets: BLOCK_SAMPLES,
      of: batch,
      ahead: async () => undefined,
      isLoading: false,
    }
    const { held, compute, batches, core } = this
    const rule = { layout: held.layout, optimizer: BENCH_OPTIMIZER }
    const targetsOf = async (blocks: readonly BlockId[]): Promise<number> => blocks.length * BLOCK_SAMPLES
    const rounds =
      fragments === undefined
        ? undefined
        : openLocalRounds(
            { rule, clipNorm: undefined, innerSteps: ROUNDS.innerSteps, compute, batches, targetsOf },
            fragments,
          )
    this.ring = new GenerationRunner({
      clock: systemClock,
      core,
      held,
      compute,
      batches,
      rounds,
      encoding,
      uploads: new UploadShare(systemClock, 1e9),
      network: grid.join(id),
      linkOpenMs: undefined,
      genesis: ZERO,
      seed: 7,
      openRelay: () => Promise.reject(new Error('internal: no relay here')),
      fromCoordinator: () => Promise.reject(new Error('internal: no coordinator here')),
      upload: async () => undefined,
      uploadSums: async (version, bytes) => void this.sums.push({ version, bytes }),
      digestOf: (bytes) => this.hashing(bytes),
      givenSum: async () => new Float32Array(held.layout.total).fill(0.5),
      send: (message) => void this.sent.push(message),
      onEncoded: () => undefined,
      onChange: () => undefined,
      onFatal: (error) => void this.failed.push(error),
    })
  }

  /** The next download of samples takes as long as the test likes. */
  holdDownload(): Gate {
    const gate = new Gate()
    this.#downloads.push(gate)
    return gate
  }

  said<T extends ToCoordinator['type']>(type: T): MessageFrom<T>[] {
    return this.sent.filter((message): message is MessageFrom<T> => message.type === type)
  }

  async hears<T extends ToCoordinator['type']>(type: T, count: number): Promise<MessageFrom<T>> {
    await until(() => this.said(type).length >= count || this.failed.length > 0)
    assert.deepEqual(this.failed, [])
    return this.said(type)[count - 1] ?? assert.fail()
  }
}

/** A ring of two, and what a coordinator would say to it. */
export class RingBench {
  readonly a: BenchMember
  readonly b: BenchMember
  readonly #kind: 'ring' | 'round'
  #generation = 0
  #version: VersionRef = ZERO

  constructor(options: BenchOptions) {
    const grid = new MemoryGrid()
    this.#kind = options.fragments === undefined ? 'ring' : 'round'
    this.a = new BenchMember(A, grid, options)
    this.b = new BenchMember(B, grid, options)
  }

  get members(): [BenchMember, BenchMember] {
    return [this.a, this.b]
  }

  get generation(): number {
    return this.#generation
  }

  tell(order: ControlMessage): void {
    for (const { ring } of this.members) ring.order(order)
  }

  freeze(): void {
    this.tell({ type: 'freeze', fence: OWNER, generation: ++this.#generation, committed: 0 })
  }

  /** Until every member confirmed; then it only lacks START. */
  async form(weights: readonly [number, number]): Promise<void> {
    const confirmed = this.a.said('confirm').length
    const changed = { generation: this.#generation, weights: [...weights], sources: [A, B], kind: this.#kind }
    this.tell(formOf([A, B], this.#version, changed))
    for (const member of this.members) await member.hears('confirm', confirmed + 1)
  }

  start(blocks: readonly BlockId[] = BLOCKS): void {
    this.tell({
      type: 'start',
      fence: OWNER,
      generation: this.#generation,
      after: this.#version,
      plan: [{ step: this.#version.v + 1, blocks: [...blocks] }],
    })
  }

  async begin(weights: readonly [number, number], blocks?: readonly BlockId[]): Promise<void> {
    this.freeze()
    await this.form(weights)
    this.start(blocks)
  }

  /** An off-ring member's sum, which the member in `place` is to contribute (A1). */
  async lend(rank: number): Promise<void> {
    const offRing = { fence: OWNER, generation: this.#generation, id: this.#generation }
    this.tell({
      type: 'off-ring',
      ...offRing,
      rank,
      blocks: [trainingBlock(0, 9)],
      samples: 4,
      targets: 4,
      lossSum: 8,
      correct: 1,
    })
    this.tell({ type: 'off-ring-take', ...offRing })
    const { core } = this.members[rank] ?? assert.fail()
    await until(() => core.ring?.givenSums.get(offRing.id)?.stage === 'here')
  }

  /** The record of the step under way, equal on both, and so are their parameters. */
  async held(): Promise<StepRecord> {
    const v = this.#version.v + 1
    const [record, other] = await Promise.all(
      this.members.map(async (member) => (await member.hears('held', v)).record),
    )
    assert.deepEqual(record, other)
    assert.ok(record)
    this.#version = extend(this.#version, record)
    assert.deepEqual(this.a.held.encode(), this.b.held.encode())
    return record
  }

  get parameters(): Float32Array {
    return this.a.held.parameters.slice()
  }

  stop(): void {
    for (const { ring } of this.members) ring.stop()
  }
}

/** Waits for a state: looks again after whatever else is due. */
export async function until(state: () => boolean): Promise<void> {
  while (!state()) await new Promise((resolve) => setTimeout(resolve, 1))
}
