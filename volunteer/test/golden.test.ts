import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GridError, writeSafetensors } from '@starling-grid/protocol'
import { readGoldenCase, runGoldenCase } from '../src/golden/index.ts'
import { agreesWith, BACKEND, files, FOLDER, LONG } from './golden-files.ts'

test('golden vectors are at hand', { skip: files.length === 0 && `no golden vectors in ${FOLDER}` }, () => {
  assert.ok(files.length >= 43)
})

for (const name of files) if (!LONG.includes(name)) agreesWith(name)

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
