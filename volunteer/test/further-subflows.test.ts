// When a link opens another connection: only while SCTP holds frames back and the line before it has no queue.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { FurtherSubflows } from '../src/link/further-subflows.ts'

interface TestLink {
  /** shortest way there and back, and that of WebRTC's packets while frames are sent; ms */
  readonly shortestMs: number
  readonly pathMs: number
  readonly framesHeld: number
  /** ms of each second in which the window is full */
  readonly fullMs?: number
  /** ms between two of WebRTC's own packets */
  readonly everyMs?: number
}

/** When it asks for another connection, in ms from the beginning; the first second only shows the line. */
function wishes(link: TestLink, milliseconds: number, answer: 'added' | 'failed' = 'added'): number[] {
  const { shortestMs, pathMs, framesHeld, fullMs = 1000, everyMs = 2000 } = link
  const further = new FurtherSubflows()
  const wished: number[] = []
  further.measured({ ms: shortestMs, count: 1 }, 0, 0)
  for (let now = 0; now < milliseconds; now += 20) {
    if (!further.noted(now % 1000 < fullMs, now)) continue
    const sample = { ms: pathMs, count: 2 + Math.floor(now / everyMs) }
    if (!further.measured(sample, framesHeld, now)) continue
    wished.push(now)
    further[answer](now)
  }
  return wished
}

const LOSSY: TestLink = { shortestMs: 45, pathMs: 47, framesHeld: 2 }

test('a line that loses packets gets one connection after the other', () => {
  const wished = wishes(LOSSY, 20_000)
  assert.ok(wished.length >= 3, `${wished}`)
  assert.ok((wished[0] ?? 0) > 2000, 'two samples are needed')
})

const without: readonly [what: string, link: TestLink][] = [
  ['whose queue is full', { ...LOSSY, pathMs: 110 }],
  ['whose frames are all on the way', { ...LOSSY, framesHeld: 0.9 }],
  ['in a network of its own', { ...LOSSY, shortestMs: 5, pathMs: 5 }],
  ['that is full for moments only', { ...LOSSY, fullMs: 300, everyMs: 700 }],
  ['of which WebRTC says nothing new', { ...LOSSY, everyMs: 1_000_000 }],
]
for (const [what, link] of without) test(`a line ${what} gets none`, () => assert.deepEqual(wishes(link, 60_000), []))

test('where no connection can be added, a link asks once a minute', () => {
  const wished = wishes(LOSSY, 120_000, 'failed')
  assert.equal(wished.length, 2, `${wished}`)
})

test('a WebRTC that says nothing of its path gets one connection', () => {
  const further = new FurtherSubflows()
  for (let now = 0; now < 60_000; now += 20)
    if (further.noted(true, now)) assert.equal(further.measured(undefined, 2, now), false)
})
