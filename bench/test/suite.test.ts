// Which rows of a suite are measured.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import * as model from '@starling-grid/model'
import * as floats from '@starling-grid/protocol/floats'
import { isMeasured, isWanted } from '../src/suite.ts'
import * as task from '../src/task.ts'

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

// Their packages come with the first benchmark, so the compiler does not see these files.
test('what the libraries that we compare with import of ours is there', () => {
  const modules: Readonly<Record<string, object>> = {
    '../src/task.ts': task,
    '@starling-grid/model': model,
    '@starling-grid/protocol/floats': floats,
  }
  const folder = new URL('../peers/', import.meta.url)
  const texts = readdirSync(folder).flatMap((name) =>
    name.endsWith('.ts') ? [readFileSync(new URL(name, folder), 'utf8')] : [],
  )
  const imports = texts.flatMap((text) => [...text.matchAll(/^import \{([^}]+)\} from '((?:\.\.|@starling).*)'/gm)])
  for (const [, names = '', from = ''] of imports)
    for (const name of names.split(',').map((one) => one.trim()))
      if (name !== '' && !name.startsWith('type ')) assert.ok(name in (modules[from] ?? {}), `${name} of ${from}`)
  assert.ok(imports.length >= 5)
})
