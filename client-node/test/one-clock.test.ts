// Shared code takes its time from the clock that its host gives it: the simulation drives that code on a clock of its
// own.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const FOLDERS = ['protocol/src', 'volunteer/src', 'coordinator/src']
/** The clocks themselves. */
const CLOCKS = new Set(['protocol/src/clock.ts', 'coordinator/src/clock.ts'])
const READS_A_CLOCK = new RegExp(
  String.raw`\b(Date\.now|performance\.(now|timeOrigin)|set(Timeout|Interval|Immediate)\(|AbortSignal\.timeout|` +
    String.raw`new Date\(\)|hrtime|timers/promises|requestAnimationFrame)`,
)
const NAMES_A_REAL_CLOCK = /\b(systemClock|processClock)\b/

/** What may name the machine's clock: file or folder → why. */
const REAL_CLOCKS: ReadonlyMap<string, string> = new Map([
  ['protocol/src/clock.ts', 'is it'],
  ['protocol/src/index.ts', 'exports it'],
  ['coordinator/src/clock.ts', 'is it'],
  ['volunteer/src/gpu/', 'measures a device'],
  ['volunteer/src/cpu/', 'absent in the options of an executor'],
  ['volunteer/src/graph/mirrored-executor.ts', 'absent in the options of an executor'],
  ['volunteer/src/graph/renewed-executor.ts', 'absent in the options of an executor'],
  ['volunteer/src/wasm/executor.ts', 'absent in the options of an executor'],
  ['volunteer/src/collectives/communicator.ts', 'absent in the options of a library'],
  ['volunteer/src/link/memory-link.ts', 'absent in the options of a library'],
  ['volunteer/src/link/rtc-subflow.ts', 'real connections'],
  ['volunteer/src/link/peerjs-network.ts', 'real connections'],
  ['coordinator/src/net/server.ts', 'absent in the options of a coordinator'],
  ['coordinator/src/net/relay.ts', 'absent in the options of a route'],
  ['coordinator/src/net/signalling.ts', 'absent in the options of a route'],
  ['coordinator/src/blobs/', 'real files and servers'],
  ['coordinator/src/folder-owner.ts', 'real files'],
  ['coordinator/src/datasets/sources.ts', 'real files'],
  ['coordinator/src/parameter-server/', 'threads and processes'],
  ['coordinator/src/audit/recompute-worker.ts', 'a thread of its own'],
])

const SOURCES = FOLDERS.flatMap((folder) =>
  readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.(ts|mjs)$/.test(name))
    .map((name) => {
      const path = `${folder}/${name.replaceAll('\\', '/')}`
      return { path, lines: readFileSync(join(ROOT, path), 'utf8').split('\n') }
    }),
)

function linesWith(pattern: RegExp, isAllowed: (path: string) => boolean): string[] {
  return SOURCES.filter(({ path }) => !isAllowed(path)).flatMap(({ path, lines }) =>
    lines.flatMap((line, i) => (pattern.test(line) ? [`${path}:${i + 1}: ${line.trim()}`] : [])),
  )
}

test('no shared code reads a clock or sets a timer of its own: the host gives it one', () => {
  assert.deepEqual(
    linesWith(READS_A_CLOCK, (path) => CLOCKS.has(path)),
    [],
  )
  for (const clock of CLOCKS) assert.ok(linesWith(READS_A_CLOCK, (path) => path !== clock).length > 0, clock)
})

test('only devices, real connections, real files and defaults of options take the clock of the machine', () => {
  const allowed = [...REAL_CLOCKS.keys()]
  assert.deepEqual(
    linesWith(NAMES_A_REAL_CLOCK, (path) => allowed.some((place) => path.startsWith(place))),
    [],
  )
  for (const place of allowed)
    assert.ok(linesWith(NAMES_A_REAL_CLOCK, (path) => !path.startsWith(place)).length > 0, `${place} names none`)
})
