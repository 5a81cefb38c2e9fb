// `starling launch` with real processes and real links: what a program of several ranks computes.
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { readSafetensors } from '@starling-grid/protocol'
import { runStarling } from './command-process.ts'

const PROGRAM = fileURLToPath(new URL('./lenet-program.ts', import.meta.url))
const GOLDEN = fileURLToPath(new URL('../../../shared/golden/trajectories/lenet_adam.safetensors', import.meta.url))
/** ms: two processes that compile, on a busy machine */
const LIMIT_MS = 240_000

const skip = !existsSync(GOLDEN) && 'no golden vectors beside this repository'

test(
  'two ranks train LeNet-5 to the losses and parameters that PyTorch has with their batches joined',
  {
    timeout: LIMIT_MS,
    skip,
  },
  async () => {
    const { status, stdout, stderr } = await runStarling(['launch', '-n', '2', PROGRAM, GOLDEN], { timeout: LIMIT_MS })
    assert.equal(status, 0, stderr)
    const line = stdout.split('\n').find((text) => text.startsWith('[0] {')) ?? ''
    const { losses, errors } = JSON.parse(line.slice('[0] '.length)) as Record<'losses' | 'errors', number[]>
    const { tensors } = readSafetensors(await readFile(GOLDEN))
    const stored = tensors.get('losses')
    assert.ok(stored !== undefined)
    const wanted = new Float32Array(new Uint8Array(stored.data).buffer)
    assert.equal(losses.length, wanted.length)
    for (const [step, loss] of losses.entries())
      assert.ok(Math.abs(loss / (wanted[step] ?? 0) - 1) < 1e-3, `step ${step}: ${loss} of PyTorch's ${wanted[step]}`)
    assert.ok(Math.max(...errors) < 2e-2, `final parameters are off by ${Math.max(...errors)}`)
  },
)

test('a program that is not there, and no ranks, are refused in words', { timeout: LIMIT_MS }, async () => {
  const missing = await runStarling(['launch', '-n', '2', 'no-such-program.ts'])
  assert.equal(missing.status, 2, missing.stderr)
  assert.match(missing.stderr, /expected a program, got no-such-program\.ts/)
  const none = await runStarling(['launch', '-n', '0', PROGRAM])
  assert.equal(none.status, 2, none.stderr)
  assert.match(none.stderr, /expected a whole number from 1 on/)
})
