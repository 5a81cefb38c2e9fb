// The short way through `bench time-to-quality`: real arithmetic, time of the model. A crowd is there sooner than one.
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { timeToQualitySuite } from '../src/time-to-quality.ts'

const MNIST = fileURLToPath(new URL('../../../shared/data/mnist', import.meta.url))
const skip = !existsSync(MNIST) && `no digits in ${MNIST}`

test('four volunteers learn digits sooner than one, and the curve says what each round costs', { skip }, async () => {
  const lines: string[] = []
  const log = (line: string): void => void lines.push(line)
  const rows = await timeToQualitySuite({
    adapter: undefined,
    executor: 'wasm',
    in: 'node',
    rounds: 1,
    short: true,
    log,
  })
  const [one, four] = rows.map(({ ours }) => ours)
  assert.ok(one !== undefined && four !== undefined && Number.isFinite(one))
  assert.ok(four < one, `four take ${four} virtual seconds, one ${one}`)
  const said = lines.filter((line) => line.includes('volunteers: '))
  assert.equal(said.length, 2)
  for (const line of said)
    assert.match(line, /to [89]\d\.\d\d %, \d+ samples in \d+ versions; a round computes \d+ of \d+ ms/)
})
