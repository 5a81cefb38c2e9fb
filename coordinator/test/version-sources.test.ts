// Who passes a version on before a round of groups (G3): members that were given it before, few for each, those that
// are known, and none that did not serve.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { asyncPolicy, own } from '@starling-grid/coordinator/run'
import { genesis, jobId, memberId, type MemberId } from '@starling-grid/protocol'
import { Introductions } from '../src/host/introductions.ts'
import { chooseSources } from '../src/run/groups/version-sources.ts'
import { ask, type Grant, push } from './async-desk.ts'
import { Desk, type DeskOptions } from './run-desk.ts'

const NAMES = [...'abcdefghij']
/** Two fetch from the coordinator. */
const SEEDED = { versionSeeds: 2, easyBytesPerMs: 0 }

function crowdDesk({ timing, ...options }: DeskOptions = {}, shy: readonly string[] = []): Desk {
  const desk = new Desk({
    mode: 'async',
    minVolunteers: NAMES.length,
    blocks: 10_000,
    batchBlocks: 1,
    async: asyncPolicy({ update: 'all' }, 12, { innerSteps: 2 }),
    roundBytes: { push: 100, pull: 1000 },
    timing: { ...SEEDED, ...timing },
    ...options,
  })
  for (const name of NAMES) desk.join(name, { relaysOnly: shy.includes(name) })
  for (const name of NAMES) desk.answer(name)
  return desk
}

type Grants = Map<string, Grant>

/** All push, and so get grants of the next version; `unserved`: what a member says of its sources. */
function nextVersion(desk: Desk, grants: Grants, unserved: Readonly<Record<string, readonly MemberId[]>> = {}): Grants {
  for (const [name, grant] of grants) push(desk, name, grant)
  const next: Grants = new Map()
  for (const name of grants.keys()) {
    const failed = unserved[name]
    desk.say(name, {
      type: 'lease-request',
      modeEpoch: desk.state.modeEpoch,
      ...(failed === undefined ? {} : { unserved: [...failed] }),
    })
    const grant = desk.sent('grant').find(({ to }) => to === name)
    assert.ok(grant, `${name} gets work`)
    next.set(name, grant)
    shared.set(
      name,
      desk.sent('share-base').map(({ to, member }) => `${to} ${member}`),
    )
  }
  return next
}
/** member → what its sources were told with its last grant */
const shared = new Map<string, string[]>()

const first = (desk: Desk): Grants => new Map(NAMES.map((name) => [name, ask(desk, name)]))
const sourcesOf = (grants: Grants, name: string): readonly MemberId[] => grants.get(name)?.sources ?? []

test('the first few fetch a version from the coordinator, the others from members that were given it before', () => {
  const desk = crowdDesk()
  const begun = first(desk)
  for (const name of NAMES) assert.deepEqual(sourcesOf(begun, name), [], 'version 0 is in no hands')
  const grants = nextVersion(desk, begun)
  for (const name of ['a', 'b']) assert.deepEqual(sourcesOf(grants, name), [])
  assert.deepEqual(sourcesOf(grants, 'c'), ['a', 'b'])
  for (const [i, name] of NAMES.entries())
    for (const source of sourcesOf(grants, name)) assert.ok(NAMES.indexOf(source) < i, `${source} was given it before`)
})

test('a source expects its asker before the asker is told of it', () => {
  const desk = crowdDesk()
  nextVersion(desk, first(desk))
  assert.deepEqual(shared.get('c'), ['a c', 'b c'])
})

test('no member passes a version on to more than four', () => {
  const desk = crowdDesk()
  const grants = nextVersion(desk, first(desk))
  const served = NAMES.flatMap((name) => sourcesOf(grants, name))
  for (const name of NAMES) assert.ok(served.filter((source) => source === name).length <= 4, `${name} serves too many`)
  assert.equal(served.length, 2 * 8, 'each of the others has two')
})

test('sources stay the same from one version to the next, so that links are there', () => {
  const desk = crowdDesk()
  const one = nextVersion(desk, first(desk))
  const two = nextVersion(desk, one)
  for (const name of NAMES) assert.deepEqual(sourcesOf(two, name), sourcesOf(one, name))
})

test('a member that still has the version before is no source', () => {
  const desk = crowdDesk()
  const one = nextVersion(desk, first(desk))
  const two = nextVersion(desk, new Map([...one].reverse()))
  assert.deepEqual(sourcesOf(two, 'h').toSorted(), ['i', 'j'])
})

test('a source that did not serve a member is not its source again, and stays that of others', () => {
  const desk = crowdDesk()
  const one = nextVersion(desk, first(desk))
  const two = nextVersion(desk, one, { d: [memberId('a')] })
  assert.deepEqual(sourcesOf(one, 'd'), ['a', 'b'])
  assert.ok(!sourcesOf(two, 'd').includes(memberId('a')))
  assert.ok(sourcesOf(two, 'c').includes(memberId('a')))
  const three = nextVersion(desk, two)
  assert.ok(!sourcesOf(three, 'd').includes(memberId('a')))
})

test('what a member says of others than its sources changes nothing', () => {
  const desk = crowdDesk()
  const one = nextVersion(desk, first(desk))
  const two = nextVersion(desk, one, { c: [memberId('j'), memberId('x')] })
  assert.deepEqual(own(desk.state, 'versionSources').habits.get(memberId('c'))?.avoided, [])
  assert.deepEqual(sourcesOf(two, 'c'), sourcesOf(one, 'c'))
})

test('a member that left is no source', () => {
  const desk = crowdDesk()
  const one = nextVersion(desk, first(desk))
  desk.feed({ type: 'member-lost', member: memberId('a'), reason: 'closed', expected: false })
  one.delete('a')
  const two = nextVersion(desk, one)
  for (const name of two.keys()) assert.ok(!sourcesOf(two, name).includes(memberId('a')))
  assert.equal(own(desk.state, 'versionSources').habits.has(memberId('a')), false)
})

test('a member that shows its address to no other fetches from the coordinator, and serves none', () => {
  const desk = crowdDesk({}, ['c'])
  const grants = nextVersion(desk, first(desk))
  assert.deepEqual(sourcesOf(grants, 'c'), [])
  for (const name of NAMES) assert.ok(!sourcesOf(grants, name).includes(memberId('c')))
})

test('the coordinator serves all where its line carries that with ease', () => {
  const desk = crowdDesk({ timing: { easyBytesPerMs: 100 } })
  const grants = nextVersion(desk, first(desk))
  for (const name of NAMES) assert.deepEqual(sourcesOf(grants, name), [])
})

test('rounds are shorter where members pass versions on, since the line carries them sooner', () => {
  const lengthOf = (versionSeeds: number): number => {
    const roundBytes = { push: 1e6, pull: 1e8 }
    const desk = crowdDesk({ roundBytes, timing: { versionSeeds } })
    nextVersion(desk, nextVersion(desk, nextVersion(desk, first(desk))))
    return desk.state.rounds.length.ms
  }
  assert.ok(lengthOf(2) < lengthOf(10), `${lengthOf(2)} ms and ${lengthOf(10)} ms`)
})

test('known sources come before those that were given the version first, and full ones are none', () => {
  const [a, b, c] = ['a', 'b', 'c'].map(memberId) as [MemberId, MemberId, MemberId]
  const free = new Map([
    [a, 0],
    [b, 1],
  ])
  assert.deepEqual(chooseSources(memberId('x'), free, { sources: [b], avoided: [] }), [b, a])
  assert.deepEqual(chooseSources(memberId('x'), free, { sources: [c], avoided: [b] }), [a])
  assert.deepEqual(chooseSources(a, free, { sources: [], avoided: [] }), [b])
})

test('members may open links to the sources of their grant, and to no others', () => {
  const introductions = new Introductions()
  const [a, b, c] = ['a', 'b', 'c'].map(memberId) as [MemberId, MemberId, MemberId]
  const grant: Grant = {
    type: 'grant',
    fence: 1,
    generation: 1,
    modeEpoch: 1,
    base: genesis(jobId('test'), 'model', 1),
    leases: [],
    deadlineMs: 1,
  }
  introductions.told(a, { ...grant, sources: [b] }, 0)
  assert.ok(introductions.mayTalk(a, b, 1) && introductions.mayTalk(b, a, 1))
  assert.ok(!introductions.mayTalk(a, c, 1))
  introductions.told(a, grant, 2)
  assert.ok(introductions.mayTalk(a, b, 3), 'a grant without sources takes none away')
})
