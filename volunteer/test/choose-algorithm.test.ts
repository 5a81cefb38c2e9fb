// Which algorithm is taken when, and that the choice explains itself.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { chooseAlgorithm, type LinkQuality } from '../src/collectives/choose-algorithm.ts'

const MB = 1_000_000
const internet: LinkQuality = { latencyMs: 40, bytesPerMs: 2000 }

function allReduce(bytes: number, size: number, link?: LinkQuality): string {
  return chooseAlgorithm({ collective: 'allReduce', bytes, size, ...(link === undefined ? {} : { link }) }).algorithm
}

test('long vectors take the ring, which needs two neighbours only', () => {
  for (const size of [2, 3, 4, 8, 16, 64]) assert.equal(allReduce(400 * MB, size), 'ring')
})

test('short vectors take fewer hops than a ring has', () => {
  assert.equal(allReduce(4, 4), 'recursive-doubling')
  assert.equal(allReduce(4, 5), 'direct') // five ranks fold to four, which takes two more hops
  assert.equal(allReduce(4, 256), 'recursive-doubling')
  assert.equal(allReduce(100_000, 8, internet), 'direct')
})

test('large groups do not exchange from every rank to every rank', () => {
  for (const bytes of [4, 10_000, MB, 100 * MB])
    for (const link of [undefined, internet]) assert.notEqual(allReduce(bytes, 17, link), 'direct')
  assert.equal(chooseAlgorithm({ collective: 'allToAll', bytes: MB, size: 64 }).algorithm, 'direct')
})

test('broadcasts of little go down a tree, of much along a chain', () => {
  assert.equal(chooseAlgorithm({ collective: 'broadcast', bytes: 100, size: 16 }).algorithm, 'star')
  assert.equal(chooseAlgorithm({ collective: 'broadcast', bytes: 200_000, size: 16 }).algorithm, 'tree')
  assert.equal(chooseAlgorithm({ collective: 'broadcast', bytes: 100 * MB, size: 16 }).algorithm, 'ring')
})

test('the prediction for a long vector is what bandwidth allows', () => {
  const { predictedMs } = chooseAlgorithm({
    collective: 'allReduce',
    bytes: 400 * MB,
    size: 4,
    link: { latencyMs: 1, bytesPerMs: 50_000 },
  })
  assert.ok(Math.abs(predictedMs - (1.5 * 400 * MB) / 50_000) < 10, `${predictedMs} ms`)
})

test('a choice names what it was compared with', () => {
  const { reason, algorithm } = chooseAlgorithm({ collective: 'allReduce', bytes: 4 * MB, size: 4 })
  assert.equal(algorithm, 'ring')
  for (const word of [
    'ring',
    'direct',
    'butterfly',
    'recursive-doubling',
    'tree',
    'star',
    '4000000 bytes',
    '4 ranks',
    'ms',
  ])
    assert.ok(reason.includes(word), `"${reason}" says nothing of ${word}`)
})

test('a lone rank waits for no other', () => {
  assert.equal(chooseAlgorithm({ collective: 'allReduce', bytes: 4 * MB, size: 1 }).predictedMs, 0)
})

test('only what is allowed is chosen', () => {
  assert.equal(chooseAlgorithm({ collective: 'allReduce', bytes: 4, size: 4, among: ['ring'] }).algorithm, 'ring')
  assert.throws(() => chooseAlgorithm({ collective: 'gather', bytes: 4, size: 4, among: ['ring'] }), {
    code: 'unsupported',
  })
})
