import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { GridError, writeSafetensors } from '@starling-grid/protocol'
import { REFERENCE_ADAPTER } from '../src/cpu/executor.ts'
import { ReferenceRunner } from '../src/cpu/runner.ts'
import { readGoldenCase, runGoldenCase, type GoldenBackend } from '../src/golden/index.ts'

const FOLDER = fileURLToPath(new URL('../../../shared/', import.meta.url))
const BACKEND: GoldenBackend = {
  adapter: REFERENCE_ADAPTER,
  createRunner: async (graph, capacity) => new ReferenceRunner(graph, capacity),
}

const files = existsSync(FOLDER)
  ? ['golden/ops', 'golden/trajectories', 'golden-language'].flatMap((folder) =>
      readdirSync(FOLDER + folder).map((name) => `${folder}/${name}`),
    )
  : []

test('golden vectors are at hand', { skip: files.length === 0 && `no golden vectors in ${FOLDER}` }, () => {
  assert.ok(files.length >= 43)
})

for (const name of files)
  test(`the reference agrees with ${name}`, async () => {
    const result = await runGoldenCase(readGoldenCase(readFileSync(FOLDER + name)), BACKEND)
    assert.equal(result.verdict, 'passed', JSON.stringify(result))
  })

const caseFile = (description: unknown) => writeSafetensors(new Map(), { case: JSON.stringify(description) })

test('what this version cannot build is unsupported and named', async () => {
  const result = await runGoldenCase(readGoldenCase(caseFile({ op: 'fft' })), BACKEND)
  assert.equal(result.verdict, 'unsupported')
  assert.match('reason' in result ? result.reason : '', /"fft"/)
})

test('a file without a case is refused', () => {
  for (const bytes of [new Uint8Array(3), writeSafetensors(new Map()), caseFile(7)])
    assert.throws(
      () => readGoldenCase(bytes),
      (error) => error instanceof GridError && error.code === 'message-malformed',
    )
})
