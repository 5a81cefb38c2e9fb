// A kept version that cannot be read any more: older ones serve, and the run goes on from them.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { asyncDesk, push } from './async-desk.ts'
import { hashOf } from './run-desk.ts'

const problem = 'Blob 12 is damaged'

/** A parameter server with checkpoints of versions 1 and 2. */
function serverWithTwo() {
  const { desk, grants } = asyncDesk(['a', 'b'], { blocks: 30 })
  for (const [name, grant] of [
    ['a', grants[0]],
    ['b', grants[1]],
  ] as const) {
    assert.ok(grant !== undefined)
    assert.equal(push(desk, name, grant), 'received')
    const { head } = desk.state.chain
    desk.feed({ type: 'server-checkpoint', version: head, blob: hashOf(`state ${head.v}`), bytes: 1 })
  }
  return desk
}

test('a parameter server whose newest checkpoint is damaged starts from the one before', () => {
  const desk = serverWithTwo()
  const [, first, second] = desk.state.checkpoints
  assert.ok(first !== undefined && second !== undefined)
  desk.feed({ type: 'checkpoint-damaged', version: second.version, problem, neededBy: 'server' })
  assert.deepEqual(
    desk.state.checkpoints.map(({ version }) => version.v),
    [0, 1],
  )
  assert.match(
    desk.effects.flatMap((effect) => (effect.type === 'note' ? [effect.text] : [])).join(),
    /checkpoint of version 2 cannot be read, version 1 is the newest that can: Blob 12/,
  )
  for (const name of ['a', 'b']) desk.say(name, { type: 'state', claim: null })
  for (let i = 0; i < 60 && desk.phase !== 'async'; i++) {
    desk.wait(1000)
    if (desk.phase === 'freeze') for (const name of ['a', 'b']) desk.say(name, { type: 'state', claim: null })
  }
  assert.equal(desk.phase, 'async')
  assert.equal(desk.state.chain.head.v, 1)
})

test('a damaged checkpoint that a reader met is left out, and the server goes on', () => {
  const desk = serverWithTwo()
  const { version } = desk.state.checkpoints.at(-1) ?? assert.fail()
  desk.feed({ type: 'checkpoint-damaged', version, problem, neededBy: 'reader' })
  assert.equal(desk.phase, 'async')
  assert.equal(desk.state.checkpoints.at(-1)?.version.v, 1)
  desk.feed({ type: 'checkpoint-damaged', version, problem, neededBy: 'server' })
  assert.equal(desk.phase, 'async', 'it is none any more: said again it changes nothing')
})

test('version 0 needs no bytes and cannot be damaged', () => {
  const { desk } = asyncDesk(['a'])
  desk.feed({ type: 'checkpoint-damaged', version: desk.state.chain.genesis, problem, neededBy: 'server' })
  assert.equal(desk.state.checkpoints.length, 1)
})
