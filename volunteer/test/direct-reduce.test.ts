// The direct exchange against a plain sum, under shuffled, repeated and hostile frames; and slices that no honest
// member sends.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { DirectReduce } from '../src/reduce/direct-reduce.ts'
import { RankFailure } from '../src/reduce/rank-failure.ts'
import type { StepReduceOptions } from '../src/reduce/reduce.ts'
import { FAR_OUTSIDE } from '../src/reduce/slice-norms.ts'
import { at, manifestOf } from './step-reduce-group.ts'
import { honest, isCode, victim } from './step-reduce-hostile.ts'
import { testStepReduce } from './step-reduce-suite.ts'

testStepReduce('direct', 2)

test('a sender outside the ranks, or with our own rank, is refused', () => {
  for (const from of [1, 3, -1, Number.NaN])
    assert.throws(() => victim('direct').accept(honest('direct'), from), isCode('message-malformed'))
})

test('a direct exchange of one is a bug: the rank has no other to exchange with', () => {
  assert.throws(() => victim('direct', { world: { rank: 0, size: 1 } }), /internal/)
})

/** Members; the last sends `times` what the others do, in one float of each part. */
function withLiar(
  size: number,
  times: number,
  options: Pick<StepReduceOptions, 'weights' | 'harmless'> = {},
): { readonly run: () => void; readonly members: readonly DirectReduce[] } {
  const length = 10 * size
  const members = Array.from(
    { length: size },
    (_, index) => new DirectReduce({ generation: 1, step: 1, world: { rank: index, size }, length, ...options }),
  )
  const run = (): void => {
    const waiting = members.flatMap((member, from) => {
      const gradient = Float32Array.from({ length }, (_, i) => 1 + ((i + from) % 3))
      if (from === size - 1) for (let i = 0; i < length; i += 10) gradient[i] = times
      return member.contribute(gradient, manifestOf(from)).map((sent) => ({ ...sent, from }))
    })
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      const { to, from, frame } = next
      waiting.push(
        ...at(members, to)
          .accept(frame, from)
          .map((sent) => ({ ...sent, from: to })),
      )
    }
  }
  return { run, members }
}

test('a slice far longer than those of the others ends the step by name, before any sum of it leaves', () => {
  for (const size of [3, 4, 8]) {
    const { run, members } = withLiar(size, 1e6)
    assert.throws(
      run,
      (error) => error instanceof RankFailure && error.code === 'gradient-outlier' && error.rank === size - 1,
    )
    assert.ok(members.every(({ done }) => !done))
  }
})

test('a slice that is longer, as of a batch that is harder, is a slice like others', () => {
  const { run, members } = withLiar(4, FAR_OUTSIDE / 10)
  run()
  assert.ok(members.every(({ done }) => done))
})

test('a member with many more samples may send that much more', () => {
  const many = 2 * FAR_OUTSIDE
  assert.throws(withLiar(4, 10 * many).run, RankFailure)
  const { run, members } = withLiar(4, 10 * many, { weights: [1, 1, 1, many] })
  run()
  assert.ok(members.every(({ done }) => done))
})

test('a slice that does no harm is not refused, however long beside others', () => {
  const { run, members } = withLiar(4, 1e6, { harmless: () => 2e6 })
  run()
  assert.ok(members.every(({ done }) => done))
})

test('of two members neither can tell who is right, so only what is no number is refused', () => {
  const { run, members } = withLiar(2, 1e6)
  run()
  assert.ok(members.every(({ done }) => done))
})

test('threat 34: finite slices whose sum is not: the member is named that sent the longest', () => {
  const [one, other] = [0, 1].map(
    (index) => new DirectReduce({ generation: 1, step: 1, world: { rank: index, size: 2 }, length: 4 }),
  )
  const huge = new Float32Array(4).fill(3e38)
  const sent = other?.contribute(huge, manifestOf(1)) ?? []
  one?.contribute(huge, manifestOf(0))
  assert.throws(
    () => sent.forEach(({ frame }) => one?.accept(frame, 1)),
    (error) => error instanceof RankFailure && error.code === 'gradient-not-finite' && error.rank === 1,
  )
})
