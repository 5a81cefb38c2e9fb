// Which rows of a suite are measured.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { isMeasured, isWanted } from '../src/suite.ts'

const PROGRAM = fileURLToPath(new URL('../../bin/starling.mjs', import.meta.url))

test('a row is found by its name as people write it, and by no other', () => {
  const rows = ['step lenet5 b64', 'step mlp b64', 'step gpt b8']
  const wanted = (only?: string) => rows.filter((row) => isWanted({ ...(only === undefined ? {} : { only }) }, row))
  assert.deepEqual(wanted('LeNet-5'), ['step lenet5 b64'])
  assert.deepEqual(wanted('step MLP'), ['step mlp b64'])
  assert.deepEqual(wanted('resnet'), [])
  assert.deepEqual(wanted(), rows)
})

test('one peer can be measured alone, and Starling always is', () => {
  const libraries = ['starling', 'starling-webgpu', 'tfjs-wasm', 'pytorch']
  const measured = (against?: string) => libraries.filter((name) => isMeasured({ against }, name))
  assert.deepEqual(measured('pytorch'), ['starling', 'pytorch'])
  assert.deepEqual(measured('wasm'), ['starling', 'tfjs-wasm'])
  assert.deepEqual(measured(), libraries)
})

test('--only with the name of no row is refused with the names of all', () => {
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [PROGRAM, 'bench', 'coordinator', '--only', 'no such row'],
    { encoding: 'utf8' },
  )
  assert.equal(status, 2)
  assert.equal(stdout, '')
  assert.match(stderr, /expected part of a row's name with --only, got "no such row"; the rows are journal, restart, /)
})
