// The list of mutants against the tree that they break: `npm run mutants` takes an hour, this takes a moment.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { MUTANTS } from '../src/mutants/list.ts'
import { mutate } from '../src/mutants/mutant.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const LEAST_MUTANTS = 140

function testFiles(): string[] {
  const all = readdirSync(ROOT, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => `${name}/test`)
  const namesIn = (folder: string): string[] => {
    try {
      return readdirSync(`${ROOT}/${folder}`)
    } catch {
      return [] // a folder without tests
    }
  }
  return all.flatMap((folder) =>
    namesIn(folder)
      .filter((name) => name.endsWith('.test.ts'))
      .map((name) => `${folder}/${name}`),
  )
}

test('every mutant still finds the line that it breaks, once', () => {
  const gone = MUTANTS.flatMap((mutant) => {
    try {
      mutate(mutant, readFileSync(`${ROOT}/${mutant.file}`, 'utf8'))
      return []
    } catch (error) {
      return [String(error)]
    }
  })
  assert.deepEqual(gone, [], 'e2e/src/mutants/ names lines that changed: name the line that has their meaning now')
})

test('every mutant changes its line, is listed once, and names tests that are there', () => {
  const files = testFiles()
  const names = new Set(MUTANTS.map(({ file, breaks, from }) => `${file}\n${breaks}\n${from}`))
  assert.equal(names.size, MUTANTS.length)
  for (const { breaks, from, to, tests } of MUTANTS) {
    assert.notEqual(from, to, breaks)
    for (const part of tests)
      assert.ok(
        files.some((file) => file.includes(part)),
        `${breaks}: no test file has ${part} in its path`,
      )
  }
})

test('the list is long, and has something of every part', () => {
  assert.ok(MUTANTS.length >= LEAST_MUTANTS, String(MUTANTS.length))
  const counts = new Map<string, number>()
  for (const { area } of MUTANTS) counts.set(area, (counts.get(area) ?? 0) + 1)
  for (const [area, count] of counts) assert.ok(count >= 3, `${area}: ${count}`)
})

test('a mutant whose text is gone, or is there twice, is an error that names it', () => {
  const mutant = { area: 'a', breaks: 'a sum', file: 'x.ts', from: 'a + b', to: 'a - b', tests: [] }
  assert.equal(mutate(mutant, 'return a + b'), 'return a - b')
  assert.throws(() => mutate(mutant, 'return a * b'), /"a sum" expects its text once in x\.ts, got it 0 times/)
  assert.throws(() => mutate(mutant, 'a + b; a + b'), /got it 2 times/)
})
