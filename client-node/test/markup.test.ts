// Names, labels and texts of strangers reach pages as text, whatever they hold.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { filesUnder, ROOT } from './tree-files.ts'

/** What makes markup or code of a text. */
const NAMES = [
  'innerHTML',
  'outerHTML',
  'insertAdjacentHTML',
  'createContextualFragment',
  'parseFromString',
  'srcdoc',
  'dangerouslySetInnerHTML',
]
const MAKES_MARKUP = new RegExp(`\\b(${NAMES.join('|')})\\b|document\\.write|\\beval\\(|new Function\\(`)

test('threat 8: no page makes markup or code of a text', () => {
  const sources = filesUnder('client-web/src').filter((path) => /\.tsx?$/.test(path))
  assert.ok(sources.length > 20)
  assert.deepEqual(
    sources.filter((path) => MAKES_MARKUP.test(readFileSync(join(ROOT, path), 'utf8'))),
    [],
  )
  assert.match('element.innerHTML = name', MAKES_MARKUP)
})
