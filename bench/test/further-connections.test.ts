// A link between two real processes, over a line that loses one packet in 200: it opens further connections, and
// frames come in order. How much it carries is measured by `bench links`.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import type { Arrived } from '../src/lines/end.ts'
import { ShapedPath } from '../src/lines/shaped-path.ts'
import { connect, startPair } from '../src/links.ts'

const LINE = { megabits: 20, latencyMs: 20, loss: 5e-3 }
/** Room for those that are tried and not opened. */
const FACES = 16

test('a link between processes gets further connections where packets get lost, and keeps its order', async (t) => {
  const path = await ShapedPath.open(LINE, FACES)
  t.after(() => path.close())
  const ends = await startPair(['Node', 'Node'])
  t.after(() => Promise.all(ends.map((end) => end.close())))
  t.after(await connect(path, ends))
  const [from, to] = ends
  await from.call('push')
  while (path.connectionsUsed < 3) await delay(50)
  const arrived = async (): Promise<number> => ((await to.call('arrived')) as Arrived).bytes
  const before = await arrived()
  while ((await arrived()) - before < 4e6) await delay(50)
  await from.call('halt')
  assert.ok(path.counts['packets lost on the way'])
})
