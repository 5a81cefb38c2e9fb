import assert from 'node:assert/strict'
import { test } from 'node:test'
import { byFalling, draws, nextToken } from '../src/text/next-token.ts'

const LOGITS = Float32Array.of(Math.log(1), Math.log(2), Math.log(5), Math.log(2))
const DRAWS = 20_000

function shares(choice: { temperature: number; topK?: number }): number[] {
  const draw = draws(3)
  const counts = [0, 0, 0, 0]
  for (let i = 0; i < DRAWS; i++) {
    const token = nextToken(LOGITS, choice, draw())
    counts[token] = (counts[token] ?? 0) + 1
  }
  return counts.map((count) => count / DRAWS)
}

function near(found: readonly number[], wanted: readonly number[]): void {
  for (const [i, share] of wanted.entries())
    assert.ok(Math.abs((found[i] ?? 0) - share) < 0.015, `${found} is not near ${wanted}`)
}

test('tokens are drawn by their softmax, sharper or flatter by the temperature', () => {
  near(shares({ temperature: 1 }), [0.1, 0.2, 0.5, 0.2])
  near(shares({ temperature: 0.5 }), [1 / 34, 4 / 34, 25 / 34, 4 / 34])
})

test('top-k leaves the most likely tokens only', () => {
  near(shares({ temperature: 1, topK: 1 }), [0, 0, 1, 0])
  near(shares({ temperature: 1, topK: 2 }), [0, 2 / 7, 5 / 7, 0])
})

test('tokens are ordered as comparing their logits orders them, equal ones as they stand', () => {
  const draw = draws(5)
  const logits = Float32Array.from({ length: 5000 }, () => Math.round(200 * (draw() - 0.5)) / 8)
  logits.set([0, -0, 1e-40, -1e-40, 3e38, -3e38, -Infinity, Infinity], 100)
  const compared = [...logits.keys()].sort((a, b) => {
    const [one, other] = [logits[a] ?? 0, logits[b] ?? 0]
    return one === other ? a - b : other - one
  })
  assert.deepEqual([...byFalling(logits)], compared)
})

test('the same seed draws the same', () => {
  const [a, b, c] = [draws(1), draws(1), draws(2)]
  const first = Array.from({ length: 5 }, a)
  assert.deepEqual(Array.from({ length: 5 }, b), first)
  assert.notDeepEqual(Array.from({ length: 5 }, c), first)
})
