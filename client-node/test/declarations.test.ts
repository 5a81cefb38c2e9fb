// What every package declares in one way.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { filesUnder, PACKAGES, ROOT } from './tree-files.ts'

const FILES = [...PACKAGES, 'examples']
  .flatMap((folder) => filesUnder(folder))
  .filter((file) => /(?<!\.d)\.tsx?$/.test(file))
const WRITTEN = [...PACKAGES, 'examples', 'bin']
  .flatMap((folder) => filesUnder(folder))
  .filter((file) => /\.(?:tsx?|mjs|wgsl|css|html|py)$/.test(file))
/** in characters; the formatter breaks neither comments nor texts */
const LONGEST_LINE = 120
const SOURCES = FILES.filter((file) => !/(^|\/)test\//.test(file)).map((file) => ({
  file,
  text: readFileSync(join(ROOT, file), 'utf8'),
}))

test('a private member of a class is a #name, which JavaScript keeps private; constructors have no such form', () => {
  const keyword = /^\s+private\s(?!constructor\().*/gm
  assert.deepEqual(
    SOURCES.flatMap(({ file, text }) => (text.match(keyword) ?? []).map((line) => `${file}: ${line.trim()}`)),
    [],
  )
})

test('no line is longer than 120 characters, comments and texts included', () => {
  const long = WRITTEN.flatMap((file) =>
    readFileSync(join(ROOT, file), 'utf8')
      .split('\n')
      .flatMap((line, at) => ([...line].length > LONGEST_LINE ? [`${file}:${at + 1}`] : [])),
  )
  assert.deepEqual(long, [])
})

/**
 * Names that other packages may take from a volunteer; tests take more from its `testing`, `member` and `collectives`.
 */
const MOST_OF_VOLUNTEER = 60

/** Names of a package's public face, which lists each. */
function faceOf(name: string): string[] {
  const face = readFileSync(join(ROOT, name, 'src/index.ts'), 'utf8')
  assert.doesNotMatch(face, /export \*/)
  return [...face.matchAll(/^export (?:type )?\{([^}]*)\}/gm)].flatMap(
    ([, list = '']) => list.match(/\w+(?=,|\s*$)/g) ?? [],
  )
}

test('the public face of the volunteer package is a list of at most 60 names', () => {
  const names = faceOf('volunteer')
  assert.ok(names.includes('createVolunteer'))
  assert.ok(names.length <= MOST_OF_VOLUNTEER, `${names.length} names`)
})

test('a package exports nothing that no other package names', () => {
  const wordsOf = FILES.map((file) => ({ file, words: new Set(readFileSync(join(ROOT, file), 'utf8').match(/\w+/g)) }))
  for (const name of ['protocol', 'shaders', 'model', 'volunteer', 'coordinator', 'cli']) {
    const others = wordsOf.filter(({ file }) => !file.startsWith(`${name}/`))
    assert.deepEqual(
      faceOf(name).filter((word) => !others.some(({ words }) => words.has(word))),
      [],
      name,
    )
  }
})

test('an interface, type or class has a name that no other has', () => {
  const declaration = /^(?:export )?(?:declare )?(?:abstract )?(?:interface|type|class|enum) (\w+)(?=[\s<])/gm
  const filesOf = new Map<string, string[]>()
  for (const { file, text } of SOURCES)
    for (const [, name = ''] of text.matchAll(declaration)) filesOf.set(name, [...(filesOf.get(name) ?? []), file])
  assert.ok(filesOf.size > 500)
  assert.deepEqual(
    [...filesOf].filter(([, files]) => files.length > 1).map(([name, files]) => `${name}: ${files.join(', ')}`),
    [],
  )
})

/** Of an object that has more, some fields belong together and have a name. */
const MOST_FIELDS = 12
/** The kernels are a table, a row for each; the others are states and parts of a coordinator, a run and a member. */
const MOST_WIDE = 8

test('at most 8 interfaces have more than 12 fields of their own', () => {
  const interfaces = /^(?:export )?interface (\w+)[^{]*\{\n([\s\S]*?)^\}/gm
  const wide = SOURCES.flatMap(({ file, text }) =>
    [...text.matchAll(interfaces)].flatMap(([, name = '', body = '']) => {
      const fields = body.match(/^ {2}(?:readonly )?['\w.-]+\??: /gm) ?? []
      return fields.length > MOST_FIELDS ? [`${name} of ${file}: ${fields.length}`] : []
    }),
  )
  assert.ok(wide.some((row) => row.startsWith('Kernels of ')))
  assert.ok(wide.length <= MOST_WIDE, wide.join(', '))
})
