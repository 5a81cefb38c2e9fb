// What every package declares in one way.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const FOLDERS = [
  ...[
    'protocol',
    'shaders',
    'model',
    'volunteer',
    'coordinator',
    'client-node',
    'client-web',
    'cli',
    'e2e',
    'bench',
  ].map((name) => `${name}/src`),
  'volunteer/testing',
  'bench/peers',
]
const SOURCES = FOLDERS.flatMap((folder) =>
  readdirSync(join(ROOT, folder), { recursive: true }).map((name) => join(folder, String(name))),
)
  .filter((file) => /(?<!\.d)\.tsx?$/.test(file) && !file.includes('node_modules'))
  .map((file) => ({ file, text: readFileSync(join(ROOT, file), 'utf8') }))

test('a private member of a class is a #name, which JavaScript keeps private; constructors have no such form', () => {
  const keyword = /^\s+private\s(?!constructor\().*/gm
  assert.deepEqual(
    SOURCES.flatMap(({ file, text }) => (text.match(keyword) ?? []).map((line) => `${file}: ${line.trim()}`)),
    [],
  )
})

/** Names that other packages may take from a volunteer; what tests take comes from its `testing`, `member` and `collectives`. */
const MOST_OF_VOLUNTEER = 60

test('the public face of the volunteer package is a list of at most 60 names', () => {
  const face = readFileSync(join(ROOT, 'volunteer/src/index.ts'), 'utf8')
  assert.doesNotMatch(face, /export \*/)
  const names = [...face.matchAll(/^export (?:type )?\{([^}]*)\}/gm)].flatMap(([, list = '']) =>
    list.match(/\w+(?=,|\s*$)/g),
  )
  assert.ok(names.includes('createVolunteer'))
  assert.ok(names.length <= MOST_OF_VOLUNTEER, `${names.length} names`)
})

/** Repeats the shells of production until the world has taken over its seeds. */
const OLD_SIMULATION = 'e2e/src/simulation/'

test('an interface, type or class has a name that no other has', () => {
  const declaration = /^(?:export )?(?:declare )?(?:abstract )?(?:interface|type|class|enum) (\w+)(?=[\s<])/gm
  const filesOf = new Map<string, string[]>()
  for (const { file, text } of SOURCES.filter(({ file }) => !file.startsWith(OLD_SIMULATION)))
    for (const [, name = ''] of text.matchAll(declaration)) filesOf.set(name, [...(filesOf.get(name) ?? []), file])
  assert.ok(filesOf.size > 500)
  assert.deepEqual(
    [...filesOf].filter(([, files]) => files.length > 1).map(([name, files]) => `${name}: ${files.join(', ')}`),
    [],
  )
})
