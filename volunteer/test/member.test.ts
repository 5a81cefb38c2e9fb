// A member's side of commit and recovery, answer by answer (R3, R7, R9, R10, R14).
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  extend,
  fold,
  type MemberId,
  memberId,
  PLAN_WINDOW,
  splitBlocks,
  trainingBlock,
  type VersionRef,
} from '@starling-grid/protocol'
import { settle } from '../src/member/committed.ts'
import type { MemberInput } from '../src/member/member-state.ts'
import { claimOf, createMember, mayServe } from '../src/member/member.ts'
import { A, B, Bench, DIGEST, manifestOf, planOf, recordOf, ZERO } from './member-bench.ts'

test('a freeze stops the ring and is answered with what is held', () => {
  const bench = new Bench().running().compute().freeze(2)
  assert.deepEqual(
    bench.effects.map(({ type }) => type),
    ['halt', 'send'],
  )
  const [state] = bench.said('state')
  assert.deepEqual([state?.generation, state?.claim?.base, state?.claim?.records.map(({ v }) => v)], [2, ZERO, [1]])
  assert.equal(bench.core.ring, undefined)
})

test('a freeze with the same ballot is answered again, an older one is not', () => {
  const bench = new Bench().freeze(3)
  assert.equal(bench.freeze(3).said('state').length, 1)
  const promise = { type: 'promised', fence: 1, generation: 2, seen: { fence: 1, generation: 3 } } as const
  assert.deepEqual(bench.freeze(2).effects, [{ type: 'send', message: promise }])
  assert.equal(bench.core.promised, 3)
})

test('a coordinator that was replaced is not obeyed, and hears what was promised', () => {
  const bench = new Bench().freeze(1, 2)
  const promise = { type: 'promised', fence: 1, generation: 5, seen: { fence: 2, generation: 1 } } as const
  assert.deepEqual(bench.freeze(5, 1).effects, [{ type: 'send', message: promise }])
  assert.equal(bench.core.promised, 1)
})

test('a newer coordinator that repeats a ballot number gets no promise (I7)', () => {
  const bench = new Bench().freeze(4, 1)
  assert.deepEqual(
    bench
      .freeze(4, 2)
      .said('promised')
      .map(({ seen }) => seen),
    [{ fence: 1, generation: 4 }],
  )
  assert.equal(bench.freeze(5, 2).said('state').length, 1)
})

test('a claim reaches down to what the coordinator has committed, as far as records are kept (R4)', () => {
  const bench = new Bench().running(planOf(1, 2, 3))
  for (let step = 1; step <= 3; step++) bench.compute()
  const { version } = bench.core
  bench.order({ type: 'ack', fence: 1, generation: 1, committed: version ?? ZERO })
  assert.deepEqual(claimOf(bench.core), { base: version, records: [] })
  const claims = [0, 1, 3].map((committed) => claimOf(bench.core, committed))
  assert.deepEqual(
    claims.map((claim) => claim?.records.map(({ v }) => v)),
    [[1, 2, 3], [2, 3], []],
  )
  for (const claim of claims) assert.deepEqual(claim && fold(claim.base, claim.records), version)
  const [state] = bench.order({ type: 'freeze', fence: 1, generation: 2, committed: 1 }).said('state')
  assert.deepEqual(state?.claim, claims[1], 'a FREEZE says what the journal reaches to')
})

test('of committed records the newest 64 are kept', () => {
  const core = createMember(A, ZERO)
  for (let v = 1; v <= 100; v++) {
    core.tail.push(recordOf(v, 1))
    settle(core, extend(core.base, recordOf(v, 1)))
  }
  assert.deepEqual([core.past.records.length, core.past.base.v, core.base.v, core.tail], [64, 36, 100, []])
  assert.deepEqual(fold(core.past.base, core.past.records), core.base)
})

test('what a left generation still brings is ignored', () => {
  const bench = new Bench().running()
  const manifest = manifestOf(planOf(1)[0]?.blocks ?? [])
  bench.begin()
  bench.tell({ type: 'computed', generation: 1, step: 1, manifest, finite: true }).freeze(2)
  assert.deepEqual(
    bench.tell({ type: 'reduced', generation: 1, step: 1, manifests: [manifest], gradDigest: DIGEST }).effects,
    [],
  )
  assert.deepEqual(bench.order({ type: 'plan', fence: 1, generation: 1, steps: planOf(3) }).effects, [])
  assert.deepEqual(
    bench.tell({ type: 'trouble', generation: 1, blamed: B, why: 'closed', code: 'link-lost', message: '' }).effects,
    [],
  )
  assert.equal(bench.core.version?.v, 0)
})

test('at the target a member confirms when its links are open', () => {
  const bench = new Bench().running().freeze(2).form(2)
  assert.deepEqual(bench.did('confirm'), [])
  assert.deepEqual(
    bench
      .tell({ type: 'links-open', generation: 2 })
      .did('confirm')
      .map(({ version }) => version),
    [ZERO],
  )
})

test('a member that holds nothing fetches the whole state, and claims it only when it is adopted', () => {
  const bench = new Bench().freeze(1).form(1, { sources: [B] })
  assert.deepEqual(
    bench.did('fetch-state').map(({ sources, coordinatorHolds }) => [sources, coordinatorHolds]),
    [[[B], true]],
  )
  assert.equal(bench.core.version, undefined)
  bench.tell({ type: 'links-open', generation: 1 })
  assert.deepEqual(bench.did('confirm'), [])
  bench.tell({ type: 'state-fetched', generation: 1, version: ZERO })
  assert.deepEqual(
    bench.effects.map(({ type }) => type),
    ['adopt', 'confirm'],
  )
})

test('one step behind, a member fetches the reduced gradient and applies it once', () => {
  const record = recordOf(1, 1)
  const target = extend(ZERO, record)
  const bench = new Bench()
    .running()
    .freeze(2)
    .form(2, { records: [record], target, sources: [B] })
  assert.equal(bench.did('fetch-reduced').length, 1)
  bench.tell({ type: 'reduced-fetched', generation: 2, version: target })
  assert.deepEqual(
    bench.did('apply').map(({ version }) => version),
    [target],
  )
  assert.deepEqual(bench.tell({ type: 'reduced-fetched', generation: 2, version: target }).effects, [])
})

test('some steps behind, a member replays them one by one, and fetches the whole state when that is less', () => {
  const records = [recordOf(1, 1), recordOf(2, 1)]
  const [second, target] = [extend(ZERO, recordOf(1, 1)), fold(ZERO, records) ?? ZERO]
  const replaying = (replayMost: number) => {
    const bench = new Bench(replayMost).running().freeze(2)
    return bench.form(2, { records, target, sources: [B] })
  }
  const bench = replaying(2)
  assert.deepEqual(
    bench.did('fetch-reduced').map(({ target: wanted }) => wanted),
    [second],
  )
  bench.tell({ type: 'reduced-fetched', generation: 2, version: second })
  assert.deepEqual(
    [bench.did('apply').map(({ version }) => version), bench.did('fetch-reduced').map(({ target: wanted }) => wanted)],
    [[second], [target]],
  )
  bench.tell({ type: 'reduced-fetched', generation: 2, version: target })
  assert.deepEqual([bench.core.version, bench.core.tail], [target, records])
  assert.equal(replaying(1).did('fetch-state').length, 1)
})

test('a replay that a newer ballot ends in the middle leaves a whole version, and the claim says which', () => {
  const records = [recordOf(1, 1), recordOf(2, 1)]
  const bench = new Bench(2)
    .running()
    .freeze(2)
    .form(2, { records, target: fold(ZERO, records) ?? ZERO, sources: [B] })
  bench.tell({ type: 'reduced-fetched', generation: 2, version: extend(ZERO, recordOf(1, 1)) }).freeze(3)
  assert.deepEqual(
    bench.said('state').map(({ claim }) => [claim?.base, claim?.records]),
    [[ZERO, [recordOf(1, 1)]]],
  )
  assert.deepEqual(
    bench.tell({ type: 'reduced-fetched', generation: 2, version: fold(ZERO, records) ?? ZERO }).effects,
    [],
  )
})

test('when no member has the reduced gradient any more, the whole state is fetched', () => {
  const record = recordOf(1, 1)
  const target = extend(ZERO, record)
  const bench = new Bench()
    .running()
    .freeze(2)
    .form(2, { records: [record], target, sources: [A, B] })
  bench.tell({ type: 'reduced-missing', generation: 2 })
  assert.deepEqual(
    bench.did('fetch-state').map(({ sources, target: wanted }) => [sources, wanted]),
    [[[B], target]],
  )
})

test('on another branch with the right number, a member fetches the whole state', () => {
  const branch = extend(ZERO, recordOf(1, 7))
  const bench = new Bench().running().compute().freeze(2)
  const record = recordOf(2, 7)
  bench.form(2, { committed: branch, records: [record], target: extend(branch, record), sources: [B] })
  assert.deepEqual([bench.did('fetch-reduced').length, bench.did('fetch-state').length], [0, 1])
})

test('a form whose records do not lead to its target is not obeyed', () => {
  const bench = new Bench().freeze(1).form(1, { records: [recordOf(1, 1)], target: ZERO })
  assert.deepEqual(bench.effects, [])
})

test('a start without a confirm begins nothing', () => {
  const bench = new Bench().freeze(1).form(1)
  assert.deepEqual(bench.start(1, planOf(1), ZERO).effects, [])
})

test('a step is applied whole, then told, then the next begins', () => {
  const bench = new Bench().running().compute()
  assert.deepEqual(
    bench.effects.map(({ type }) => type),
    ['apply', 'send', 'compute'],
  )
  const [held] = bench.said('held')
  assert.ok(held)
  assert.deepEqual(bench.core.version, extend(ZERO, held.record))
  assert.deepEqual(held.record.blocks, planOf(1)[0]?.blocks)
})

test('the plan may come before the start', () => {
  const bench = new Bench().freeze(1).form(1)
  bench.tell({ type: 'links-open', generation: 1 }).tell({ type: 'state-fetched', generation: 1, version: ZERO })
  assert.deepEqual(bench.order({ type: 'plan', fence: 1, generation: 1, steps: planOf(2) }).effects, [])
  bench.start(1, planOf(1)).compute()
  assert.deepEqual(
    bench.did('compute').map(({ step }) => step),
    [2],
  )
})

test('no step begins after the one that the members change at', () => {
  const bench = new Bench().running(planOf(1, 2, 3)).order({ type: 'last-step', fence: 1, generation: 1, step: 1 })
  bench.effects = [{ type: 'compute', kind: 'ring', generation: 1, step: 1, blocks: planOf(1)[0]?.blocks ?? [] }]
  assert.deepEqual(bench.compute().did('compute'), [])
})

test('a member that is a whole window ahead of the last commit waits for the coordinator', () => {
  const steps = Array.from({ length: PLAN_WINDOW + 1 }, (_, i) => i + 1)
  const bench = new Bench().running(planOf(...steps))
  for (let step = 1; step <= PLAN_WINDOW; step++) bench.compute()
  assert.deepEqual([bench.core.version?.v, bench.did('compute')], [PLAN_WINDOW, []])
  const committed = fold(ZERO, bench.core.tail.slice(0, 10))
  assert.ok(committed)
  bench.order({ type: 'ack', fence: 1, generation: 1, committed })
  assert.deepEqual(
    bench.did('compute').map(({ step }) => step),
    [PLAN_WINDOW + 1],
  )
  assert.deepEqual([bench.core.base, bench.core.tail.length], [committed, PLAN_WINDOW - 10])
})

test('an acknowledgement of another branch changes nothing', () => {
  const bench = new Bench().running().compute()
  bench.order({ type: 'ack', fence: 1, generation: 1, committed: extend(ZERO, recordOf(1, 9)) })
  assert.deepEqual([bench.core.base, bench.core.tail.length], [ZERO, 1])
})

test('a share that does not hold its planned blocks ends the generation, and its author is named', () => {
  const [step] = planOf(1)
  const bench = new Bench().running(planOf(1), [A, B])
  const [own, others] = splitBlocks(step?.blocks ?? [], [1, 1]).map(manifestOf)
  assert.ok(own && others)
  bench.begin()
  bench.tell({ type: 'computed', generation: 1, step: 1, manifest: own, finite: true })
  bench.tell({
    type: 'reduced',
    generation: 1,
    step: 1,
    manifests: [own, manifestOf([trainingBlock(0, 9)])],
    gradDigest: DIGEST,
  })
  assert.deepEqual(
    bench.said('abort').map(({ blamed }) => blamed),
    [B],
  )
  assert.equal(bench.core.version?.v, 0)
})

test('a gradient that is not finite goes nowhere', () => {
  const bench = new Bench().running()
  bench.begin()
  bench.tell({
    type: 'computed',
    generation: 1,
    step: 1,
    manifest: manifestOf(planOf(1)[0]?.blocks ?? []),
    finite: false,
  })
  assert.deepEqual(
    [bench.did('contribute'), bench.said('abort').map(({ blamed, code }) => [blamed, code])],
    [[], [[A, 'gradient-not-finite']]],
  )
})

test('a member is told which of its links the coordinator relays: two of a ring, all of a direct', () => {
  const others = ['b', 'c', 'd'].map(memberId)
  const linksOf = (members: readonly MemberId[], relayed: [number, number][], exchange?: 'direct') => {
    const [links] = new Bench()
      .freeze(1)
      .form(1, {
        members: [...members],
        weights: members.map(() => 1),
        relayed,
        ...(exchange ? { exchange: { type: exchange, reason: '' } } : {}),
      })
      .did('open-links')
    return [links?.neighbours, links?.relayed]
  }
  const ring = [others[0] ?? B, A, ...others.slice(1)]
  assert.deepEqual(linksOf(ring, []), [['c', 'b'], []])
  assert.deepEqual(linksOf(ring, [[1, 2]]), [['c', 'b'], ['c']])
  assert.deepEqual(
    linksOf(ring, [
      [0, 1],
      [2, 3],
    ]),
    [['c', 'b'], ['b']],
  )
  assert.deepEqual(linksOf([A, B], [[0, 1]]), [['b'], ['b']])
  assert.deepEqual(linksOf(ring, [], 'direct'), [['c', 'b', 'd'], []])
  assert.deepEqual(
    linksOf(
      ring,
      [
        [0, 3],
        [1, 3],
      ],
      'direct',
    ),
    [['c', 'b', 'd'], ['d']],
  )
})

test('an ABORT names the blamed member and the reason, and every link with the same trouble', () => {
  const told = (trouble: Pick<Extract<MemberInput, { type: 'trouble' }>, 'blamed' | 'alsoBlamed' | 'why'>) =>
    new Bench()
      .running()
      .tell({ type: 'trouble', generation: 1, code: 'link-lost', message: '', ...trouble })
      .said('abort')
      .map(({ blamed, why, links }) => [blamed, why, links])
  assert.deepEqual(told({ blamed: B, why: 'silent' }), [[B, 'silent', [B]]])
  assert.deepEqual(told({ blamed: B, alsoBlamed: [memberId('c')], why: 'unopened' }), [[B, 'unopened', [B, 'c']]])
  assert.deepEqual(told({ blamed: B, why: 'refused' }), [[B, 'refused', []]])
  assert.deepEqual(told({ blamed: null, why: 'stalled' }), [[null, 'stalled', []]])
})

test('a generation is given up once', () => {
  const trouble: MemberInput = {
    type: 'trouble',
    generation: 1,
    blamed: B,
    why: 'closed',
    code: 'link-lost',
    message: 'gone',
  }
  const bench = new Bench().running()
  assert.equal(bench.tell(trouble).said('abort').length, 1)
  assert.deepEqual(bench.tell(trouble).effects, [])
})

test('at a checkpoint one member uploads and the others say their digest', () => {
  for (const [uploader, effect] of [
    [A, 'upload'],
    [B, 'report-digest'],
  ] as const) {
    const bench = new Bench().running()
    bench.core.ring?.plan.delete(2)
    bench.order({ type: 'checkpoint-at', fence: 1, generation: 1, v: 1, uploader })
    bench.effects = [{ type: 'compute', kind: 'ring', generation: 1, step: 1, blocks: planOf(1)[0]?.blocks ?? [] }]
    assert.deepEqual(
      bench.compute().effects.map(({ type }) => type),
      ['apply', 'send', effect],
    )
  }
})

test('a source serves only what it holds, and only in the ballot that it promised', () => {
  const { core } = new Bench().running().compute().freeze(2)
  const held: VersionRef | undefined = core.version
  assert.ok(held)
  assert.equal(mayServe(core, 2, held), true)
  assert.equal(mayServe(core, 1, held), false)
  assert.equal(mayServe(core, 2, ZERO), false)
})

test('a source outside the ring lets in the members that it is told of, in the ballot that it promised (R7)', () => {
  const bench = new Bench().running().compute().freeze(2)
  const meet = (generation: number, relayed?: MemberId[]) =>
    bench.order({ type: 'meet', fence: 1, generation, members: [B], ...(relayed ? { relayed } : {}) })
  assert.deepEqual(meet(2).effects, [{ type: 'meet', generation: 2, members: [B], relayed: [] }])
  assert.deepEqual(meet(2, [B]).effects, [{ type: 'meet', generation: 2, members: [B], relayed: [B] }])
  assert.deepEqual(meet(1).effects, [])
})

test('async mode ends the ring and asks for work; the next freeze ends async mode', () => {
  const bench = new Bench().running().order({ type: 'async', fence: 1, generation: 1, modeEpoch: 4 })
  assert.deepEqual([bench.did('halt').length, bench.said('lease-request').map(({ modeEpoch }) => modeEpoch)], [1, [4]])
  assert.equal(bench.freeze(2).core.asyncEpoch, undefined)
})
