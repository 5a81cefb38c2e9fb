// Which members hold no place of their job, since they do nothing there.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { memberId } from '@starling-grid/protocol'
import { inertMembers } from '../src/run/ring/inert.ts'
import { ask, asyncDesk, push } from './async-desk.ts'
import { Desk } from './run-desk.ts'

const MINUTE_MS = 60_000

const inert = (desk: Desk): readonly string[] => inertMembers(desk.state, desk.now)

test('in async mode a member that asks for no work is inert after three minutes, and one that works is not', () => {
  const { desk, grants } = asyncDesk(['a', 'b'], { blocks: 600 })
  desk.join('mute')
  assert.ok(grants[0])
  assert.equal(push(desk, 'a', grants[0]), 'received')
  desk.wait(3 * MINUTE_MS + 1)
  ask(desk, 'b')
  assert.deepEqual(inert(desk), [memberId('a'), memberId('mute')])
  assert.equal(push(desk, 'a', ask(desk, 'a')), 'received')
  assert.deepEqual(inert(desk), [memberId('mute')])
})

test('members of a ring are judged by its steps, and those beside it by what they do', () => {
  const desk = new Desk({ minVolunteers: 2, blocks: 600 })
  desk.join('a', 'b')
  desk.run('a', 'b')
  assert.deepEqual([desk.phase, inert(desk)], ['ring', []])
  desk.join('mute')
  desk.now += 10 * MINUTE_MS
  assert.equal(desk.phase, 'ring')
  assert.deepEqual(inert(desk), [memberId('mute')])
})

test('volunteers that waited for others are not inert when the run starts, and none is while it waits', () => {
  const desk = new Desk({ minVolunteers: 2 })
  desk.join('a')
  desk.wait(60 * MINUTE_MS)
  assert.deepEqual(inert(desk), [])
  desk.join('b')
  assert.deepEqual([desk.phase, inert(desk)], ['freeze', []])
})
