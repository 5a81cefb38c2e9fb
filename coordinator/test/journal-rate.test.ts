// What one member can make the coordinator write.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { trainingBlock } from '@starling-grid/protocol'
import { ROWS_AT_ONCE } from '../src/host/journal-rate.ts'
import { QUICK, smallJob, startCoordinator, submit, until, volunteer } from './fixture.ts'

/** blocks that one message may name */
const BLOCKS_IN_ONE = 256
/** ms: on a machine that does much else */
const BUSY_MS = 300_000

test('threat 26: a member that causes too many journal rows is disconnected with the reason', async () => {
  const coordinator = await startCoordinator({ timing: QUICK })
  const { url } = coordinator
  const { id } = await submit(
    url,
    smallJob({ blockSamples: 1, batchBlocks: 4, stop: { epochs: 1000 }, volunteers: { min: 3 } }),
  )
  const members = [volunteer(url, { stepMs: 50 }), volunteer(url, { stepMs: 50 }), volunteer(url, { stepMs: 50 })]
  await until(url, 'the ring', (run) => run.phase === 'ring' && run.version.v > 2)
  const { state } = coordinator.runs.find(id) ?? assert.fail()
  assert.ok(state.config.blocks > 2 * ROWS_AT_ONCE, `${state.config.blocks} blocks`)
  const all = Array.from({ length: 2 * ROWS_AT_ONCE }, (_, i) => trainingBlock(0, i))
  for (const member of members)
    for (let at = 0; at < all.length && member.socket.readyState === member.socket.OPEN; at += BLOCKS_IN_ONE)
      member.send({
        type: 'unreadable',
        blocks: all.slice(at, at + BLOCKS_IN_ONE),
        code: 'shard-corrupt',
        message: 'a lie',
      })
  // a row is that member's whose word was the third: on a busy machine any of them
  const refused = members.map(async (member) => {
    const { message } = await member.heard('refused', ({ code }) => code === 'rate-exceeded')
    await member.closed
    return message
  })
  assert.match(await Promise.any(refused), /expected at most \d+ journal rows a minute/)
  assert.ok(state.quarantined.size <= ROWS_AT_ONCE + BLOCKS_IN_ONE, `${state.quarantined.size} rows`)
})

test('a fast ring commits as many steps as it likes: rows of work count for nothing', async () => {
  const coordinator = await startCoordinator({ timing: QUICK })
  const { url } = coordinator
  await submit(url, smallJob({ stop: { epochs: 1000 }, volunteers: { min: 2 } }))
  const members = [volunteer(url, { stepMs: 0 }), volunteer(url, { stepMs: 0 })]
  const run = await until(url, 'many steps', ({ version }) => version.v > 500, BUSY_MS)
  assert.deepEqual(run.departed, [])
  assert.equal(run.refusals['rate-exceeded'] ?? 0, 0)
  for (const member of members) member.close()
})
