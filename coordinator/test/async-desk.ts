// A run in async mode at a desk (run-desk.ts): members ask, get grants, push. Used by the run-async*.test.ts files.
import assert from 'node:assert/strict'
import { own } from '@starling-grid/coordinator/run'
import { type BlockId, memberId, type MessageTo, type Push } from '@starling-grid/protocol'
import { Desk, type DeskOptions, hashOf } from './run-desk.ts'

const USUAL = { gradient: 1, statistics: 1 }

export type Grant = MessageTo<'grant'>

/** In async mode, each member with a grant. */
export function asyncDesk(
  names: readonly string[],
  options: DeskOptions = {},
): { readonly desk: Desk; readonly grants: Grant[] } {
  const desk = new Desk({ mode: 'async', minVolunteers: names.length, ...options })
  desk.join(...names)
  for (const name of names) desk.answer(name)
  for (const name of names) own(desk.state, 'pushNorms').add(memberId(name), USUAL) // each has pushed before
  return { desk, grants: names.map((name) => ask(desk, name)) }
}

export function ask(desk: Desk, name: string): Grant {
  desk.say(name, { type: 'lease-request', modeEpoch: desk.state.modeEpoch })
  const grant = desk.sent('grant').find(({ to }) => to === name)
  assert.ok(grant, `${name} gets work`)
  return grant
}

export function push(
  desk: Desk,
  name: string,
  { modeEpoch, base, leases }: Grant,
  { norms, ...changed }: Partial<Push> & { readonly norms?: typeof USUAL } = {},
): string | undefined {
  if (norms === undefined)
    for (const id of desk.state.members.keys())
      if (own(desk.state, 'pushNorms').of(id).length === 0) own(desk.state, 'pushNorms').add(id, USUAL)
  const samples = leases.length
  desk.feed({
    type: 'push',
    gradDigest: hashOf('sum'),
    norms: norms ?? USUAL,
    push: {
      incarnation: memberId(name),
      modeEpoch,
      base,
      leases,
      samples,
      targets: samples,
      lossSum: 1,
      correct: 0,
      ...changed,
    },
  })
  return desk.verdict
}

export function blocksOf({ leases }: Grant): BlockId[] {
  return leases.map(({ block }) => block)
}
