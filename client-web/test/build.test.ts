import assert from 'node:assert/strict'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { before, test } from 'node:test'
import { gzipSync } from 'node:zlib'
import * as protocol from '@starling-grid/protocol'
import { ensureWebPage } from '../build.ts'
import { UNUSED_KEYWORDS } from '../vite.config.ts'

let folder: string
before(async () => {
  folder = await ensureWebPage(() => undefined)
})

/** Kilobytes, compressed, of all files that a name matches. */
async function weight(pattern: RegExp): Promise<number> {
  const files = (await readdir(join(folder, 'assets'))).filter((file) => pattern.test(file))
  assert.notEqual(files.length, 0, `no file is named like ${pattern}`)
  const sizes = await Promise.all(
    files.map(async (file) => gzipSync(await readFile(join(folder, 'assets', file))).length),
  )
  return sizes.reduce((sum, size) => sum + size, 0) / 1000
}

/** The files that a page asks for by itself. */
async function loadedBy(page: string): Promise<RegExp> {
  const html = await readFile(join(folder, page), 'utf8')
  const scripts = [...html.matchAll(/\/assets\/([\w.-]+\.js)"/g)].map(([, file]) => file)
  return new RegExp(`^(${scripts.join('|')})$`)
}

/** A script, and what it imports before it runs. */
async function importedBy(pattern: RegExp): Promise<RegExp> {
  const open = (await readdir(join(folder, 'assets'))).filter((file) => pattern.test(file))
  const found = new Set(open)
  for (let file = open.pop(); file !== undefined; file = open.pop()) {
    const text = await readFile(join(folder, 'assets', file), 'utf8')
    for (const [, name = ''] of text.matchAll(/(?:from|import)"\.\/([\w.-]+\.js)"/g))
      if (!found.has(name)) {
        open.push(name)
        found.add(name)
      }
  }
  return new RegExp(`^(${[...found].join('|')})$`)
}

test('two processes that need the pages at once get the same folder', async () => {
  const [one, other] = await Promise.all([ensureWebPage(() => undefined), ensureWebPage(() => undefined)])
  assert.equal(one, other)
})

test('nothing is inlined that the content security policy would refuse', async () => {
  for (const page of ['index.html', 'dashboard.html', 'api.html']) {
    const html = await readFile(join(folder, page), 'utf8')
    assert.doesNotMatch(html, /<style|style=|<script(?![^>]*src=)|data:|javascript:/)
  }
  assert.ok((await readdir(join(folder, 'assets'))).some((file) => file.endsWith('.wgsl')))
})

test('the contribute page loads at most 60 kB of script, the dashboard at most 60 kB more', async () => {
  const contribute = await weight(await loadedBy('index.html'))
  const dashboard = await weight(await loadedBy('dashboard.html'))
  assert.ok(contribute <= 60, `${contribute} kB`)
  assert.ok(dashboard <= contribute + 60, `${dashboard} kB`)
})

test('what writes text weighs at most 105 kB at first, and no page loads it by itself', async () => {
  const writer = await weight(await importedBy(/^write-worker-.*\.js$/))
  assert.ok(writer <= 105, `${writer} kB`)
  const atFirst = await loadedBy('dashboard.html')
  for (const file of await readdir(join(folder, 'assets')))
    if (/^write-worker|^chat-template/.test(file)) assert.doesNotMatch(file, atFirst)
})

test('the Worker weighs at most 105 kB, and the code for connections is not part of the first load', async () => {
  const worker = await weight(/^train-worker-.*\.js$/)
  assert.ok(worker <= 105, `${worker} kB`)
  const atFirst = await loadedBy('index.html')
  for (const file of await readdir(join(folder, 'assets')))
    if (/^rtc-link|^train-worker/.test(file)) assert.doesNotMatch(file, atFirst)
})

test('no schema uses a keyword that the pages leave out', () => {
  const left = new Set(UNUSED_KEYWORDS)
  const found = new Set<string>()
  let schemas = 0
  const walk = (value: unknown): void => {
    if (typeof value !== 'object' || value === null) return
    for (const [key, inner] of Object.entries(value)) {
      if (key === 'properties') for (const property of Object.values(inner as object)) walk(property)
      else {
        if (left.has(key)) found.add(key)
        walk(inner)
      }
    }
  }
  for (const [name, value] of Object.entries(protocol))
    if (name.endsWith('Schema') && typeof value === 'object') {
      schemas++
      walk(value)
    }
  assert.ok(schemas > 10, `${schemas} schemas`)
  assert.deepEqual([...found], [])
})
