// Which coordinator has which job, for whatever is written: each job has one taker, on which all agree.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type JobId, jobId } from '@starling-grid/protocol'
import fc from 'fast-check'
import { type CoordinatorId, coordinatorId } from '../src/journal/owner-book.ts'
import { inheritance, orphans, type Owned, type CoordinatorPeer, roomElsewhere } from '../src/owners/who-owns.ts'

const IDS = ['a', 'b', 'c', 'd'].map(coordinatorId)
const peer: fc.Arbitrary<Omit<CoordinatorPeer, 'id'>> = fc.record({
  isLive: fc.boolean(),
  takesJobs: fc.boolean(),
  openJobs: fc.nat(9),
})
/** As the coordinator `a` sees it, which lives. */
const owned: fc.Arbitrary<Owned> = fc
  .record({
    peers: fc.tuple(peer, peer, peer, peer),
    owners: fc.array(fc.option(fc.constantFrom(...IDS), { nil: undefined }), { maxLength: 12 }),
  })
  .map(({ peers, owners }) => ({
    self: coordinatorId('a'),
    peers: IDS.map((id, i) => ({
      id,
      ...(peers[i] as Omit<CoordinatorPeer, 'id'>),
      ...(i === 0 ? { isLive: true } : {}),
    })),
    owners: new Map(owners.map((owner, i): [JobId, CoordinatorId | undefined] => [jobId(`job-${i}`), owner])),
  }))
const isLive = ({ peers }: Owned, id: CoordinatorId | undefined): boolean =>
  peers.some((one) => one.id === id && one.isLive)
const takes = ({ peers }: Owned, id: CoordinatorId): boolean => peers.some((one) => one.id === id && one.takesJobs)

test('every job without a living owner has one taker, and no other job has any', () => {
  fc.assert(
    fc.property(owned, (state) => {
      const passings = orphans(state)
      const expected = [...state.owners].filter(([, owner]) => !isLive(state, owner)).map(([job]) => job)
      const anyTakes = state.peers.some((one) => one.isLive && one.takesJobs)
      assert.deepEqual(passings.map(({ job }) => job).sort(), anyTakes ? expected.sort() : [])
      for (const { job, from, to } of passings) {
        assert.equal(from, state.owners.get(job))
        assert.ok(isLive(state, to) && takes(state, to), `${to} takes ${job}`)
      }
    }),
  )
})

test('all coordinators that live agree on who takes what', () => {
  fc.assert(
    fc.property(owned, fc.constantFrom(...IDS), (state, self) => {
      const [own, others] = [orphans(state), orphans({ ...state, self })]
      assert.deepEqual(others, own)
    }),
  )
})

test('jobs are divided by room: none gets one while another that takes jobs has two fewer', () => {
  fc.assert(
    fc.property(owned, (state) => {
      const passings = orphans(state)
      const after = new Map(state.peers.map(({ id, openJobs }) => [id, openJobs]))
      for (const { to } of passings) after.set(to, (after.get(to) ?? 0) + 1)
      const takers = state.peers.filter((one) => one.isLive && one.takesJobs)
      const least = Math.min(...takers.map(({ id }) => after.get(id) ?? 0))
      for (const { to } of passings) assert.ok((after.get(to) ?? 0) - least <= 1, `${to} has more than its part`)
    }),
  )
})

test('one that ends leaves all its jobs to others, and none to itself', () => {
  fc.assert(
    fc.property(owned, (state) => {
      const passings = inheritance(state)
      const own = [...state.owners].filter(([, owner]) => owner === state.self).map(([job]) => job)
      const isAlone = !state.peers.some(({ id, ...one }) => id !== state.self && one.isLive && one.takesJobs)
      assert.deepEqual(passings.map(({ job }) => job).sort(), isAlone ? [] : own.sort())
      assert.ok(passings.every(({ to }) => to !== state.self && isLive(state, to)))
    }),
  )
})

test('a job goes where two fewer are open, and comes not back', () => {
  fc.assert(
    fc.property(owned, (state) => {
      const to = roomElsewhere(state)
      if (to === undefined) return
      const moved = state.peers.map((one) => ({
        ...one,
        openJobs: one.openJobs + Number(one.id === to) - Number(one.id === state.self),
      }))
      assert.notEqual(roomElsewhere({ ...state, self: to, peers: moved }), state.self)
    }),
  )
})
