// Addresses, headers and closing codes of the coordinator are written once.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { pathTo, ROUTES } from '@starling-grid/protocol'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const SOURCES = ['protocol', 'volunteer', 'coordinator', 'client-node', 'client-web', 'cli', 'e2e', 'bench']
  .map((name) => `${name}/src`)
  .flatMap((folder) => readdirSync(join(ROOT, folder), { recursive: true }).map((name) => join(folder, String(name))))
  .filter((file) => /\.tsx?$/.test(file) && file !== join('protocol/src/routes.ts'))
const COMMENT = /^\s*(?:\/\/|\*|\/\*).*$|(?<=\s)\/\/ .*$/gm
/** A route at the beginning of a text or behind an address, one of our headers, or a code that closes a WebSocket. */
const ROUTE = /['"`}]\/(?:api|healthz|readyz|dashboard|signalling|relay)\b/
const HEADER_OR_CODE = /x-starling-|close\((?:1|4)\d{3}|const CLOSE_(?!MS)\w+ = \d{4}$/
const WRITTEN_AGAIN = new RegExp(`${ROUTE.source}|${HEADER_OR_CODE.source}`, 'gm')

test('a path has the parts of its route, escaped, in the place of their names', () => {
  assert.equal(
    pathTo(ROUTES.upload, { id: 'digits-1', v: 12, versionId: 'a/b' }),
    '/api/jobs/digits-1/versions/12/a%2Fb',
  )
  assert.equal(pathTo(ROUTES.jobs, {}), ROUTES.jobs)
})

test('each route, header and closing code of the coordinator is written in protocol/src/routes.ts alone', () => {
  const again = SOURCES.flatMap((file) =>
    (readFileSync(join(ROOT, file), 'utf8').replaceAll(COMMENT, '').match(WRITTEN_AGAIN) ?? []).map(
      (text) => `${file}: ${text}`,
    ),
  )
  assert.deepEqual(again, [])
})
