// Members of one step in memory, around the ring or in a direct exchange, and the frames between them: for tests of
// both.
import assert from 'node:assert/strict'
import { type Frame, packFrame, trainingBlock, unpackFrame, type Manifest } from '@starling-grid/protocol'
import { DirectReduce } from '../src/reduce/direct-reduce.ts'
import type { Addressed, Reduce, StepReduceOptions } from '../src/reduce/reduce.ts'
import { RingReduce } from '../src/reduce/ring-reduce.ts'
import { evenBuckets } from '../src/reduce/schedule.ts'

export type Way = 'ring' | 'direct'

export interface Shape {
  readonly size: number
  readonly length: number
  readonly chunkBytes: number
  readonly bucketFloats: number
}

export interface InFlight {
  readonly from: number
  readonly to: number
  readonly frame: Frame
}

/** Members of one step in memory, and the frames between them. */
export class Group {
  readonly way: Way
  readonly size: number
  readonly members: Reduce[]
  readonly gradients: Float32Array[]
  readonly bytesSent: number[]
  inFlight: InFlight[] = []

  constructor(
    way: Way,
    { size, length, chunkBytes, bucketFloats }: Shape,
    value: (member: number, i: number) => number,
  ) {
    this.way = way
    this.size = size
    const buckets = evenBuckets(length, bucketFloats).reverse() // as backward finishes them
    const optionsOf = (index: number): StepReduceOptions => ({
      generation: 7,
      step: 3,
      world: { rank: index, size },
      length,
      chunkBytes,
      buckets,
    })
    this.members = Array.from({ length: size }, (_, index) =>
      way === 'ring' ? new RingReduce(optionsOf(index)) : new DirectReduce(optionsOf(index)),
    )
    this.gradients = Array.from({ length: size }, (_, m) => Float32Array.from({ length }, (_, i) => value(m, i)))
    this.bytesSent = new Array<number>(size).fill(0)
  }

  contribute(index: number): void {
    this.send(index, at(this.members, index).contribute(at(this.gradients, index), manifestOf(index)))
  }

  contributeBucket(index: number, bucket: number): void {
    this.send(index, at(this.members, index).contributeBucket(bucket, at(this.gradients, index)))
  }

  deliver({ from, to, frame }: InFlight): void {
    this.send(to, at(this.members, to).accept(frame, from))
  }

  send(from: number, frames: readonly Addressed[]): void {
    for (const { to, frame } of frames) {
      if (frame.type !== 'manifest') this.bytesSent[from] = at(this.bytesSent, from) + frame.payload.byteLength
      // Packing copies, as a link does: what is read later must not depend on what the sender does meanwhile.
      this.inFlight.push({ from, to, frame: unpackFrame(packFrame(frame)) })
    }
  }

  runInOrder(): void {
    for (let i = 0; i < this.size; i++) this.contribute(i)
    this.deliverAll()
  }

  deliverAll(): void {
    for (let next = this.inFlight.shift(); next !== undefined; next = this.inFlight.shift()) this.deliver(next)
  }

  /** Contributes and delivers in the order that `pick` chooses; repeats what `repeat` says. */
  runShuffled(pick: (choices: number) => number, repeat: () => boolean): void {
    const waiting = this.members.map((_, i) => i)
    while (waiting.length + this.inFlight.length > 0) {
      const choice = pick(waiting.length + this.inFlight.length)
      if (choice < waiting.length) {
        this.contribute(at(waiting.splice(choice, 1), 0))
        continue
      }
      const chosen = at(this.inFlight, choice - waiting.length)
      if (!repeat()) this.inFlight.splice(choice - waiting.length, 1)
      this.deliver(chosen)
    }
  }

  /** Members hold equal bytes, near enough to the sum in double precision, and equal manifests. */
  check(): void {
    const [first] = this.members
    assert.ok(first?.done)
    const manifests = this.members.map((_, i) => manifestOf(i))
    for (const member of this.members) {
      assert.ok(member.done)
      assert.deepEqual(bits(member.sum), bits(first.sum))
      assert.deepEqual(member.manifests, manifests)
      assert.equal(member.progress.received, member.progress.expected)
    }
    first.sum.forEach((sum, i) => {
      const terms = this.gradients.map((gradient) => at(gradient, i))
      const magnitude = terms.reduce((total, term) => total + Math.abs(term), 0)
      const exact = terms.reduce((total, term) => total + term, 0)
      // N−1 roundings of f32, each of relative size 2⁻²⁴ of a partial sum
      assert.ok(Math.abs(sum - exact) <= this.size * magnitude * 2 ** -24, `float ${i}: ${sum}, expected ${exact}`)
    })
  }
}

export function manifestOf(index: number): Manifest {
  return {
    blocks: [trainingBlock(0, index)],
    samples: 10 + index,
    targets: 10 + index,
    lossSum: index / 3,
    correct: index,
  }
}

export function at<T>(values: ArrayLike<T>, index: number): T {
  const value = values[index]
  if (value === undefined) throw new Error(`no element ${index}`)
  return value
}

export function bits(values: Float32Array): Uint32Array {
  return new Uint32Array(values.buffer, values.byteOffset, values.length)
}

/** Park and Miller's generator: enough to shuffle, the same on every machine. */
export function seeded(seed: number): (below: number) => number {
  let state = (seed % 2147483646) + 1
  return (below) => {
    state = (state * 48271) % 2147483647
    return state % below
  }
}

export const wave = (member: number, i: number): number => Math.sin(1 + member * 31 + i * 0.7) * 10 ** ((i % 7) - 3)
