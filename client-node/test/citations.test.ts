// What comments, tests and documents cite is in the repository: rules, threats, files, pages and their headings.
import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { test } from 'node:test'
import { filesUnder, PACKAGES, ROOT } from './tree-files.ts'

const TEXT = /\.(ts|tsx|mjs|md|wgsl|html|css)$/
/** This file names what it forbids. */
const SELF = 'client-node/test/citations.test.ts'

const isText = (path: string): boolean => TEXT.test(path) && path !== SELF

interface Text {
  readonly path: string
  readonly text: string
}

const textOf = (path: string): Text => ({ path, text: readFileSync(join(ROOT, path), 'utf8') })
const TEXTS = ['README.md', ...[...PACKAGES, 'docs', 'examples', 'bin'].flatMap(filesUnder).filter(isText)].map(textOf)
const PAGES = TEXTS.filter(({ path }) => path.endsWith('.md'))
const pageOf = (path: string): string => textOf(path).text

/** `where: what` of every match that is not right, once. */
function wrongIn(texts: readonly Text[], pattern: RegExp, isRight: (match: string, path: string) => boolean): string[] {
  const wrong = texts.flatMap(({ path, text }) =>
    [...text.matchAll(pattern)]
      .map(([whole, group = whole]) => group)
      .filter((match) => !isRight(match, path))
      .map((match) => `${path}: ${match}`),
  )
  return [...new Set(wrong)]
}

/** First cells of a page's table rows. */
const rowsOf = (page: string): Set<string> =>
  new Set([...page.matchAll(/^\| ([\w-]+) \|/gm)].map(([, cell = '']) => cell))

test('every rule and invariant that is cited has a row in docs/RULES.md', () => {
  const rows = rowsOf(pageOf('docs/RULES.md'))
  assert.deepEqual(
    wrongIn(TEXTS, /\b(?:R[0-9]{1,2}|A[1-9]|I[1-9])\b/g, (rule) => rows.has(rule)),
    [],
  )
})

test('every threat that a test cites has a row in docs/SECURITY.md, and the tests of a row cite it', () => {
  const page = pageOf('docs/SECURITY.md')
  const rows = rowsOf(page)
  const tests = TEXTS.filter(({ path }) => path.includes('/test/'))
  assert.deepEqual(
    wrongIn(tests, /\bthreat ([0-9]+)/g, (number) => rows.has(number)),
    [],
  )
  for (const [, number = '', files = ''] of page.matchAll(/^\| ([0-9]+) \| [^|]* \| ([^|]*) \|$/gm))
    for (const [, file = ''] of files.matchAll(/`([^`]+)`/g))
      assert.match(pageOf(file), new RegExp(`\\bthreat ${number}\\b`), `${file} has a test of threat ${number}`)
})

test('every file that a document names is there', () => {
  const named = new RegExp(String.raw`\`((?:${[...PACKAGES, 'docs', 'bin', 'examples'].join('|')})/[\w./-]+)\``, 'g')
  assert.deepEqual(
    wrongIn(PAGES, named, (file) => existsSync(join(ROOT, file))),
    [],
  )
})

test('no text cites a document outside the repository', () => {
  const places = (path: string): string[] => [ROOT, join(ROOT, 'docs'), join(ROOT, dirname(path))]
  const isHere = (page: string, path: string): boolean => places(path).some((place) => existsSync(join(place, page)))
  assert.deepEqual(wrongIn(TEXTS, /(?<![\w/.:-])((?:[\w.-]+\/)*[\w-]+\.md)\b/g, isHere), [])
  assert.deepEqual(
    wrongIn(TEXTS, /\b(?:DESIGN|STYLE)\b(?: §[\w.]+)?/g, () => false),
    [],
  )
  // sections of standards are cited by the standard's number
  assert.deepEqual(
    wrongIn(TEXTS, /\S+ §[\w.]*/g, (section) => /^\(?[0-9]+ §/.test(section)),
    [],
  )
})

test('every link between documents leads to a page and a heading that are there', () => {
  const anchorOf = (heading: string): string =>
    heading
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
      .replaceAll(' ', '-')
  const hasHeading = (page: string, anchor: string): boolean =>
    [...page.matchAll(/^#+ (.*)$/gm)].some(([, heading = '']) => anchorOf(heading) === anchor)
  const leads = (link: string, from: string): boolean => {
    const [file = '', anchor] = link.split('#')
    const target = file === '' ? from : join(dirname(from), file)
    if (!existsSync(join(ROOT, target))) return false
    return anchor === undefined || hasHeading(pageOf(target), anchor)
  }
  assert.deepEqual(wrongIn(PAGES, /\]\((?!https?:)([^)\s]+)\)/g, leads), [])
})

/** Words that name no actor, in 1,000 words of comments, documents and test names. */
const MOST_UNNAMED = 0.2

test('comments, documents and test names name the actor', () => {
  const comments = /^\s*(?:\/\/|\*|\/\*).*$|(?<=\s)\/\/ .*$/gm
  const testNames = /(?<=\b(?:test|it|describe)\(\s*)(?:'.*?'|".*?"|`.*?`)(?=,)/gs
  const readable = ({ path, text }: Text): string =>
    path.endsWith('.md') ? text : [...(text.match(comments) ?? []), ...(text.match(testNames) ?? [])].join('\n')
  const read = TEXTS.map(readable)
  const count = (pattern: RegExp): number => read.reduce((sum, text) => sum + (text.match(pattern)?.length ?? 0), 0)
  const unnamed = count(/\b(?:nobody|somebody|whoever|whom|everybody)\b/gi)
  const words = count(/[a-z']+/gi)
  assert.ok(words > 50_000)
  assert.ok(
    (1000 * unnamed) / words <= MOST_UNNAMED,
    `expected at most ${MOST_UNNAMED} in 1,000, got ${unnamed} in ${words}; name the member, the caller or the owner`,
  )
})
