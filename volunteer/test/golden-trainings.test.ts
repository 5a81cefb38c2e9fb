// Trainings of PyTorch that take the reference ten seconds each.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { agreesWith, files, FOLDER, LONG } from './golden-files.ts'

const here = LONG.filter((name) => files.includes(name))

test('golden trainings are at hand', { skip: here.length === 0 && `no golden vectors in ${FOLDER}` }, () => {
  assert.equal(here.length, LONG.length)
})

for (const name of here) agreesWith(name)
