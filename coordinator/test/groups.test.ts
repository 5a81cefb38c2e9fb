// Groups of `starling launch`: who may bring ranks, and which ranks exchange messages.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type MemberId, newMemberId } from '@starling-grid/protocol'
import { GroupBook } from '../src/net/groups.ts'

const MINUTE = 60_000

function opened(size: number): { book: GroupBook; id: string; secret: string; gone: MemberId[] } {
  const gone: MemberId[] = []
  const book = new GroupBook((member) => gone.push(member))
  const { group, secret } = book.open(size, 0)
  return { book, id: group.id, secret, gone }
}

test('ranks stand in the order in which launchers brought them, and the same ranks again change nothing', () => {
  const { book, id, secret } = opened(3)
  const [first, second, third] = [newMemberId(), newMemberId(), newMemberId()]
  assert.deepEqual(book.join(id, secret, [first, second], 0).members, [first, second])
  assert.deepEqual(book.join(id, secret, [third], 1).members, [first, second, third])
  assert.deepEqual(book.join(id, secret, [first, second], 2).members, [first, second, third])
})

test('a group takes no ranks without its secret, above its size, twice, or of another group', () => {
  const { book, id, secret } = opened(2)
  const [first, second] = [newMemberId(), newMemberId()]
  assert.throws(() => book.join(id, '0'.repeat(64), [first], 0), { code: 'session-unknown' })
  assert.throws(() => book.join('0'.repeat(32), secret, [first], 0), { code: 'session-unknown' })
  assert.throws(() => book.join(id, secret, [first, first], 0), { code: 'usage' })
  assert.throws(() => book.join(id, secret, [first, second, newMemberId()], 0), /at most 2 more ranks of 2, got 3/)
  book.join(id, secret, [first], 0)
  const other = book.open(2, 0)
  assert.throws(() => book.join(other.group.id, other.secret, [first], 0), /ranks of no other group/)
})

test('ranks of one group hear each other and no others, and speak with their own secret', () => {
  const { book, id, secret } = opened(2)
  const [first, second, stranger] = [newMemberId(), newMemberId(), newMemberId()]
  book.join(id, secret, [first, second], 0)
  const other = book.open(1, 0)
  book.join(other.group.id, other.secret, [stranger], 0)
  assert.equal(book.mayTalk(first, second), true)
  assert.equal(book.mayTalk(first, stranger), false)
  assert.equal(book.mayTalk(newMemberId(), second), false)
  assert.equal(book.speaksFor(first, secret), true)
  assert.equal(book.speaksFor(first, other.secret), false)
})

test('a group that never fills is forgotten after ten minutes, and the oldest of many makes room', () => {
  const { book, id, secret, gone } = opened(2)
  const member = newMemberId()
  book.join(id, secret, [member], 0)
  assert.throws(() => book.join(id, secret, [member], 11 * MINUTE), { code: 'session-unknown' })
  assert.deepEqual(gone, [member])
  const old = book.open(1, 11 * MINUTE)
  for (let i = 0; i < 64; i++) book.open(1, 11 * MINUTE)
  assert.throws(() => book.join(old.group.id, old.secret, [member], 11 * MINUTE), { code: 'session-unknown' })
})
