// The golden command with its cases inside headless Chromium: same rows, same exit codes.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { copyFileSync, existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { findChromium } from '@starling-grid/client-node'
import { floatTensor, writeSafetensors } from '@starling-grid/protocol'

const TYPESCRIPT = fileURLToPath(new URL('../../bin/typescript.mjs', import.meta.url))
const PROGRAM = fileURLToPath(new URL('../src/main.ts', import.meta.url))
const GOLDEN = fileURLToPath(new URL('../../../shared/golden/ops', import.meta.url))
const FEW = ['relu_6x37', 'linear_b7_i33_o17', 'conv2d_b2_c3_17x15_o8_k3_s2_p1_g1', 'cross_entropy_37x10']

const browserMissing = await findChromium().then(
  () => false as const,
  (error: unknown) => `no browser: ${error}`,
)
const folder = mkdtempSync(join(tmpdir(), 'starling-golden-'))
after(() => rmSync(folder, { recursive: true }))

function golden(...args: string[]) {
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [TYPESCRIPT, PROGRAM, 'golden', ...args, '--in', 'browser', '--json'],
    { encoding: 'utf8' },
  )
  return { status, stderr, report: JSON.parse(stdout.trimEnd().split('\n').at(-1) || 'null') as unknown }
}

test(
  'golden vectors pass in Chromium, on its own adapter',
  { skip: browserMissing || (!existsSync(GOLDEN) && `no golden vectors in ${GOLDEN}`) },
  () => {
    for (const name of FEW) copyFileSync(join(GOLDEN, `${name}.safetensors`), join(folder, `${name}.safetensors`))
    const { status, stderr, report } = golden(folder)
    assert.equal(status, 0, stderr)
    assert.deepEqual(
      report,
      { cases: FEW.length, passed: FEW.length, failed: [], unsupported: [], adapter: 'google swiftshader' },
      stderr,
    )
  },
)

test('a wrong result and a damaged file in Chromium are failures', { skip: browserMissing }, () => {
  const tensor = (...values: number[]) => floatTensor([1, values.length], Float32Array.from(values))
  const tensors = { 'in.x': tensor(-1, 2), y: tensor(0, 3), dy: tensor(3, 4), 'grad.x': tensor(0, 4) }
  writeFileSync(
    join(folder, 'wrong.safetensors'),
    writeSafetensors(new Map(Object.entries(tensors)), { case: JSON.stringify({ op: 'relu' }) }),
  )
  writeFileSync(join(folder, 'torn.safetensors'), 'torn')
  const { status, stderr, report } = golden(folder)
  assert.equal(status, 1)
  assert.match(stderr, /failed +wrong .* y 3\.3e-1 > 1e-5/)
  assert.ok(typeof report === 'object' && report !== null && 'failed' in report)
  assert.deepEqual(report.failed, ['torn', 'wrong'])
})
