// Rows of `bench gpu` in their short form, on whatever adapter this machine has: that they measure what they say.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import type { BenchRow } from '../src/row.ts'

const PROGRAM = fileURLToPath(new URL('../../bin/starling.mjs', import.meta.url))

test('bench gpu says how long each kernel of a gradient takes, and checks products and steps', async () => {
  const args = [PROGRAM, 'bench', 'gpu', '--short', '--rounds', '1', '--json']
  const { stdout, stderr } = await promisify(execFile)(process.execPath, args)
  const { rows } = JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as { rows: BenchRow[] }
  assert.deepEqual(
    rows.map(({ name }) => name),
    ['matmul 64', 'step lenet5 b8', 'kernels of step lenet5 b8'],
  )
  for (const { name, ours } of rows) assert.ok(ours > 0, `${name}: ${ours}`)
  assert.match(stderr, /\d ms {2}.*× conv2d\S* \d+×\d+/)
  assert.match(stderr, /matmul 64: starling is right/)
})

test('bench gpu measures no software adapter unless it is told to', async () => {
  const run = promisify(execFile)(process.execPath, [
    PROGRAM,
    'bench',
    'gpu',
    '--rounds',
    '1',
    '--adapter',
    'swiftshader',
  ])
  await assert.rejects(run, /expected a GPU, got the software adapter/)
})
