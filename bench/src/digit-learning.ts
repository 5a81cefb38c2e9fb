// What members of the model of scale learn of digits: real rounds, encodings, outer steps and tests, by the parts that
// ship. Time is the model's.
import type { ModelLearning } from '@starling-grid/cli/scaling'
import { ParameterServer } from '@starling-grid/coordinator/shell'
import {
  encodeVector,
  decodeVector,
  gradientForm,
  initialVersionState,
  outerOptimizer,
  parameterLayout,
  readPush,
  type LossyEncoding,
  type ModelSpec,
  type VersionForm,
} from '@starling-grid/model'
import {
  type BlockId,
  blockIndex,
  type LocalSettings,
  type MemberId,
  type MessageTo,
  type Push,
  type StepRecord,
  systemClock,
  type VersionRef,
} from '@starling-grid/protocol'
import type { OptimizerSpec } from '@starling-grid/shaders'
import { Compute, type Executor, LocalVersion } from '@starling-grid/volunteer'
import { openLocalRounds, startFeedback, swapped, withResidual, type Batch } from '@starling-grid/volunteer/testing'

export interface DigitSamples {
  readonly x: Uint8Array
  readonly y: Uint8Array
}

export interface LearningOptions {
  readonly executor: Executor
  readonly spec: ModelSpec
  readonly optimizer: OptimizerSpec
  readonly local: LocalSettings
  readonly encoding: LossyEncoding
  readonly blockSamples: number
  readonly train: DigitSamples
  readonly test: DigitSamples
  /** accuracy on the test digits that ends it */
  readonly target: number
  readonly seed: number
  /** progress, for people */
  readonly log: (line: string) => void
}

interface MemberWork {
  readonly rounds: ReturnType<typeof openLocalRounds>
  feedback: ReturnType<typeof startFeedback>
  /** of the round under way, once it is computed */
  body: Uint8Array | undefined
  norm: number
  /** learned from in it */
  blocks: number
}

const PIXEL_SCALE = 1 / 255
const PIXELS = 28 * 28
/** Samples between two tests: one takes as long as training on a third of them. */
const TESTED_EVERY = 5000
/** Of the test digits, so many are tried first. The others follow where these are right this nearly as often. */
const TRIED_FIRST = 2000
const NEARLY = 0.01
const KEPT_VERSIONS = 24
const TEST_BATCH = 500

export class DigitLearning implements ModelLearning {
  isOver = false
  /** virtual ms at which the version was committed that reached the target */
  reachedAt: number | undefined
  accuracy = 0
  readonly #options: LearningOptions
  readonly #form: VersionForm
  readonly #server: ParameterServer
  readonly #members = new Map<MemberId, MemberWork>()
  readonly #bases = new Map<number, Float32Array>()
  readonly #made: { version: VersionRef; norm: number }[] = []
  #work: Promise<void> = Promise.resolve()
  #tested = 0
  #samples = 0

  constructor(options: LearningOptions) {
    const { spec, optimizer, local } = options
    this.#options = options
    this.#form = { spec, layout: parameterLayout(spec), optimizer, outer: outerOptimizer(local) }
    const given = { clipNorm: undefined, rounds: true, delayCompensation: undefined, cores: 1 }
    this.#server = new ParameterServer({ form: this.#form, ...given })
  }

  async begin(genesis: VersionRef): Promise<void> {
    const { spec, optimizer, outer } = this.#form
    const state = initialVersionState(spec, optimizer, this.#options.seed, outer)
    await this.#server.load({ version: genesis, ...state })
    this.#keep(0, state.parameters)
  }

  granted(member: MemberId, grant: MessageTo<'grant'>): void {
    this.#then(() => this.#learn(this.#memberOf(member), grant))
  }

  pushed({ incarnation, leases }: Push): { readonly gradient: number; readonly statistics: number } {
    const { body, norm, blocks } = this.#memberOf(incarnation)
    if (body === undefined) throw new Error('internal: a push came before what it holds was computed')
    if (leases.length !== blocks)
      throw new Error(
        `internal: expected all ${blocks} blocks of a round, got ${leases.length}: the rest is learned here`,
      )
    return { gradient: norm, statistics: 0 }
  }

  added({ incarnation, targets, base }: Push, damping: number): void {
    const member = this.#memberOf(incarnation)
    const { body } = member
    if (body === undefined) throw new Error('internal: a push without a body')
    member.feedback = swapped(member.feedback)
    const { layout } = this.#form
    const gradient = readPush(body, gradientForm(layout, undefined, this.#options.encoding), layout.trained)
    this.#then(async () => void (await this.#server.add({ gradient, targets, base, damping })))
  }

  closed(record: StepRecord, version: VersionRef, at: number): void {
    this.#then(async () => {
      const norm = await this.#server.close(version, record.targets)
      this.#made.push({ version, norm })
      const parameters = this.#server.parametersOf(version.id)?.parameters
      if (parameters === undefined) throw new Error('internal: the version that was made is not there')
      this.#keep(version.v, parameters)
      this.#samples += record.samples
      if (!this.isOver && this.#samples - this.#tested >= TESTED_EVERY) await this.#test(version.v, parameters, at)
    })
  }

  async settle(): Promise<readonly { readonly version: VersionRef; readonly norm: number }[]> {
    await this.#work
    return this.#made.splice(0)
  }

  #then(work: () => Promise<void>): void {
    this.#work = this.#work.then(work)
  }

  #memberOf(id: MemberId): MemberWork {
    const known = this.#members.get(id)
    if (known !== undefined) return known
    const { executor, spec, optimizer, local } = this.#options
    const compute = new Compute(executor, new LocalVersion({ spec, optimizer, clipNorm: undefined }), systemClock)
    const rounds = openLocalRounds({
      rule: { layout: this.#form.layout, optimizer },
      clipNorm: undefined,
      innerSteps: local.innerSteps,
      compute,
      batches: { of: async (blocks) => this.#batchOf(blocks), ahead: async () => undefined },
      targetsOf: async (blocks) => blocks.length * this.#options.blockSamples,
    })
    const made = { rounds, feedback: startFeedback(this.#form.layout.total), body: undefined, norm: 0, blocks: 0 }
    this.#members.set(id, made)
    return made
  }

  async #learn(member: MemberWork, grant: MessageTo<'grant'>): Promise<void> {
    const { base, leases, innerSteps = 1, fromStep = 0, rate = 1 } = grant
    const parameters = this.#bases.get(base.v)
    if (parameters === undefined) throw new Error(`internal: version ${base.v} is not kept`)
    const blocks = leases.map(({ block }) => block)
    const signal = new AbortController().signal
    const order = { base, parameters, blocks, innerSteps, fromStep, rate, signal, onLearned: () => undefined }
    const result = await member.rounds.run(order)
    if (result?.finite !== true) throw new Error('expected finite parameters after inner steps, got NaN or infinity')
    const { residual, next } = member.feedback
    withResidual(member.rounds.contribution, residual, next)
    member.body = encodeVector(next, this.#options.encoding, next)
    member.blocks = blocks.length
    member.norm = normOf(this.#decoded(member.body)) / result.sums.targets
  }

  #decoded(body: Uint8Array): Float32Array {
    const { total, trained } = this.#form.layout
    const values = new Float32Array(total)
    decodeVector(body, this.#options.encoding, values)
    return values.subarray(0, trained)
  }

  #batchOf(blocks: readonly BlockId[]): Batch {
    const { train, blockSamples } = this.#options
    const rows = blocks.flatMap((block) =>
      Array.from({ length: blockSamples }, (_, i) => blockIndex(block) * blockSamples + i),
    )
    return batchOf(
      train,
      rows.filter((row) => row < train.y.length),
    )
  }

  /** What members start from: halves, as they are sent. */
  #keep(v: number, parameters: Float32Array): void {
    const base = new Float32Array(parameters.length)
    decodeVector(encodeVector(parameters.slice(), 'f16'), 'f16', base)
    this.#bases.set(v, base)
    this.#bases.delete(v - KEPT_VERSIONS)
  }

  async #correctOf(rows: readonly number[]): Promise<number> {
    const { executor, test } = this.#options
    let correct = 0
    for (let from = 0; from < rows.length; from += TEST_BATCH)
      correct += (await executor.evaluate(batchOf(test, rows.slice(from, from + TEST_BATCH)))).correct
    return correct
  }

  /** On a part of the test digits, and on all of them when that part is nearly good enough. */
  async #test(v: number, parameters: Float32Array, at: number): Promise<void> {
    const { executor, test, target, log } = this.#options
    this.#tested = this.#samples
    executor.loadParameters(parameters)
    // every so-manieth first: the first half of MNIST's are harder than the second
    const stride = Math.max(1, Math.floor(test.y.length / TRIED_FIRST))
    const tried = Array.from(test.y, (_, i) => i).filter((i) => i % stride === 0)
    let correct = await this.#correctOf(tried)
    let count = tried.length
    if (stride > 1 && correct / count >= target - NEARLY) {
      correct += await this.#correctOf(Array.from(test.y, (_, i) => i).filter((i) => i % stride !== 0))
      count = test.y.length
    }
    this.accuracy = correct / count
    log(`  version ${v}, ${(at / 1000).toFixed(1)} s: ${(100 * this.accuracy).toFixed(2)} % of ${count} test digits`)
    if (count < test.y.length || this.accuracy < target) return
    this.isOver = true
    this.reachedAt = at
  }
}

function batchOf({ x, y }: DigitSamples, rows: readonly number[]): Batch {
  const pixels = new Float32Array(rows.length * PIXELS)
  for (const [i, row] of rows.entries())
    for (let p = 0; p < PIXELS; p++) pixels[i * PIXELS + p] = (x[row * PIXELS + p] ?? 0) * PIXEL_SCALE
  return { samples: rows.length, x: pixels, y: Int32Array.from(rows, (row) => y[row] ?? 0) }
}

function normOf(values: Float32Array): number {
  let sum = 0
  for (const value of values) sum += value * value
  return Math.sqrt(sum)
}
