// The golden command as scripts call it: rows, exit codes, and the JSON on the last line.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { floatTensor, writeSafetensors, type StoredTensor } from '@starling-grid/protocol'

const TYPESCRIPT = fileURLToPath(new URL('../../bin/typescript.mjs', import.meta.url))
const PROGRAM = fileURLToPath(new URL('../src/main.ts', import.meta.url))

const folder = mkdtempSync(join(tmpdir(), 'starling-golden-'))
after(() => rmSync(folder, { recursive: true }))

function golden(...args: string[]) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [TYPESCRIPT, PROGRAM, 'golden', ...args], {
    encoding: 'utf8',
  })
  return { status, stdout, stderr, lastLine: stdout.trimEnd().split('\n').at(-1) ?? '' }
}

function write(name: string, description: object, tensors: Record<string, StoredTensor>): void {
  writeFileSync(
    join(folder, `${name}.safetensors`),
    writeSafetensors(new Map(Object.entries(tensors)), { case: JSON.stringify(description) }),
  )
}

const vector = (...values: number[]) => floatTensor([1, values.length], Float32Array.from(values))
const relu = { 'in.x': vector(-1, 2), y: vector(0, 2), dy: vector(3, 4), 'grad.x': vector(0, 4) }

test('a folder whose cases pass exits with 0', () => {
  write('good', { op: 'relu' }, relu)
  const { status, lastLine } = golden(folder, '--executor', 'reference')
  assert.equal(status, 0)
  assert.equal(lastLine, '1 passed, 0 failed, 0 unsupported')
})

test('failed, damaged and unsupported cases are named, and the exit code is 1', () => {
  write('bad', { op: 'relu' }, { ...relu, y: vector(0, 3) })
  write('new', { op: 'warp' }, relu)
  writeFileSync(join(folder, 'torn.safetensors'), 'torn')
  const { status, stdout, stderr, lastLine } = golden(folder, '--executor', 'reference', '--json')
  assert.equal(status, 1)
  assert.equal(stdout.trim(), lastLine)
  assert.match(stderr, /failed +bad .* y 3\.3e-1 > 1e-5/)
  assert.match(stderr, /unsupported +new .*"warp"/)
  const { adapter, ...report } = JSON.parse(lastLine)
  assert.deepEqual(report, { cases: 4, passed: 1, failed: ['bad', 'torn'], unsupported: ['new'] })
  assert.equal(typeof adapter, 'string')
})

test('an unreadable folder is one clear line and exit code 1, a wrong call is 2', () => {
  const missing = golden(join(folder, 'nowhere'), '--executor', 'reference')
  assert.equal(missing.status, 1)
  assert.match(missing.stderr, /^expected a folder of golden cases, got ".*nowhere" \(.*\n$/)
  assert.equal(golden('--executor', 'abacus', folder).status, 2)
  assert.equal(golden().status, 2)
})
