// A version whose holders are here and can neither upload it nor pass it on is given up in the end (R17-stranded).
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { DEFAULT_TIMING } from '@starling-grid/coordinator/run'
import { memberId, type VersionRef } from '@starling-grid/protocol'
import { verdictOn } from '../src/run/ballot/stranded.ts'
import { newcomer } from '../src/run/ring/newcomer.ts'
import { Desk } from './run-desk.ts'

const LOST_MS = DEFAULT_TIMING.lostMs
const holder = memberId('holder')

describe('a version is given up', () => {
  const tries = (uploads: number, fetches: number) => ({ uploads, fetches, since: 0 })
  const isGivenUp = (uploads: number, fetches: number, now: number) =>
    verdictOn(tries(uploads, fetches), now, LOST_MS).isGivenUp

  test('when uploads and fetches failed several times, for ten times as long as one that is lost is waited for', () => {
    assert.equal(isGivenUp(5, 5, 10 * LOST_MS), true)
    assert.equal(isGivenUp(5, 5, 10 * LOST_MS - 1), false)
  })

  test('not for failed uploads alone, nor for failed fetches alone', () => {
    assert.equal(isGivenUp(99, 4, 99 * LOST_MS), false)
    assert.equal(isGivenUp(4, 99, 99 * LOST_MS), false)
  })

  test('with a reason for people', () => {
    assert.equal(verdictOn(tries(7, 5), 600_000, LOST_MS).reason, '7 uploads and 5 fetches failed in 600 s')
    assert.match(verdictOn(tries(7, 0), 600_000, LOST_MS).reason, /tried on/)
  })
})

/** All blocks are trained by one member, whose uploads never begin. `b`, where it is here, opens no link to it. */
function trainedAlone(...others: readonly string[]): Desk {
  const desk = new Desk({ minVolunteers: 1 })
  desk.join('holder')
  desk.run('holder')
  for (const v of [1, 2, 3, 4]) desk.step(v)
  desk.join(...others)
  for (const name of others) newcomer(desk.state, memberId(name)).proven = true
  return desk
}

/** what the holder claims: it keeps it when the run goes back */
let held: VersionRef | undefined

/** What the members do from one state of the run to the next. `linked`: the other fetches, and confirms. */
function goOn(desk: Desk, others: readonly string[], linked = false): void {
  const { phase, chain } = desk.state
  const [other] = others
  if (chain.head.v > 0) held = chain.head
  if (phase.type === 'freeze') {
    desk.answer('holder', [], held ?? chain.head)
    for (const name of others) desk.answer(name)
  } else if (phase.type !== 'form') desk.wait(3100)
  else if (phase.target.v > 0 && !linked && other !== undefined && phase.members.includes(memberId(other)))
    desk.accuse(other, 'holder', 'unopened')
  else for (const id of phase.members) desk.confirm(id)
}

const rewinds = (desk: Desk): number => desk.entries.filter(({ entry }) => entry.type === 'rewind').length

describe('a run whose last version is held by one member that cannot upload it', () => {
  const live = (desk: Desk, others: readonly string[], linked = false): number => {
    held = undefined
    const began = desk.now
    while (rewinds(desk) === 0 && desk.now - began < 100 * LOST_MS) goOn(desk, others, linked)
    return desk.now - began
  }

  test('goes back without it when no link to it opens, and the others train the blocks again', () => {
    const desk = trainedAlone('b')
    const ms = live(desk, ['b'])
    assert.ok(ms >= 10 * LOST_MS && ms < 20 * LOST_MS, `after ${ms / 1000} s`)
    assert.ok((desk.state.members.get(holder)?.excludedUntil ?? 0) > desk.now)
    for (let i = 0; i < 5 && desk.phase !== 'ring'; i++) goOn(desk, ['b'])
    assert.deepEqual([desk.phase, [...desk.members], desk.state.chain.head.v], ['ring', [memberId('b')], 0])
    desk.step(1)
    assert.deepEqual([desk.state.chain.head.v, desk.state.stranded.size], [1, 0])
  })

  test('keeps it while another member can fetch it', () => {
    const desk = trainedAlone('b')
    live(desk, ['b'], true)
    assert.equal(rewinds(desk), 0)
  })

  test('keeps it while no other member is there to train its blocks', () => {
    const desk = trainedAlone()
    live(desk, [])
    assert.equal(rewinds(desk), 0)
  })
})
