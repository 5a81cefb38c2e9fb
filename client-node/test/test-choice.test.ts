// What `npm test` leaves to `npm run test:all` is there, and what is said to keep its promise is run by `npm test`.
import assert from 'node:assert/strict'
import { readdirSync } from 'node:fs'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'

// Plain JavaScript, read before TypeScript can be.
const { LATER, LONGEST_FIRST } = (await import(new URL('../../bin/test-choice.mjs', import.meta.url).href)) as {
  readonly LATER: Readonly<Record<string, string>>
  readonly LONGEST_FIRST: readonly string[]
}
const ROOT = fileURLToPath(new URL('../..', import.meta.url))

function testNames(): ReadonlySet<string> {
  const folders = readdirSync(ROOT, { withFileTypes: true }).filter(
    (entry) => entry.isDirectory() && readdirSync(`${ROOT}/${entry.name}`).includes('test'),
  )
  const files = folders.flatMap(({ name }) => readdirSync(`${ROOT}/${name}/test`))
  return new Set(files.filter((name) => name.endsWith('.test.ts')).map((name) => name.slice(0, -'.test.ts'.length)))
}

test('each file that is left to test:all is there, and its keepers are run by npm test', () => {
  const names = testNames()
  for (const [name, keeper] of Object.entries(LATER)) {
    assert.ok(names.has(name), `${name}.test.ts is gone: take it from the list`)
    const keepers = [...keeper.matchAll(/([\w-]+)\.test\.ts/g)].map(([, found = '']) => found)
    assert.ok(keepers.length > 0, `${name}: nobody keeps its promise`)
    for (const found of keepers)
      assert.ok(names.has(found) && !Object.hasOwn(LATER, found), `${name}: ${found}.test.ts is not run by npm test`)
  }
})

test('each file that begins first is there, and named once', () => {
  const names = testNames()
  assert.deepEqual(
    LONGEST_FIRST.filter((name, at) => !names.has(name) || LONGEST_FIRST.indexOf(name) !== at),
    [],
  )
})
