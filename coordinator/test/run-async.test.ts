// The parameter server's side of a run: how ring and server take over from each other (A5, A6), which pushes count
// (A2). Also what a crash costs (A4).
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { applyEntry, DEFAULT_ASYNC, own } from '@starling-grid/coordinator/run'
import { type BlockId, epochOrder, memberId, type MessageTo, trainingBlock } from '@starling-grid/protocol'
import { ask, asyncDesk, blocksOf, type Grant, push } from './async-desk.ts'
import { Desk, hashOf } from './run-desk.ts'

test('two members get different blocks, and a push is a version at once', () => {
  const {
    desk,
    grants: [a, b],
  } = asyncDesk(['a', 'b'])
  assert.ok(a && b)
  assert.equal(new Set([...blocksOf(a), ...blocksOf(b)]).size, 6)
  assert.equal(push(desk, 'a', a), 'received')
  assert.deepEqual(
    desk.journalled('commit').flatMap(({ records }) => records.map(({ kind, blocks }) => [kind, blocks])),
    [['async', blocksOf(a)]],
  )
  const order = desk.effects.map(({ type }) => type)
  assert.deepEqual(
    order.filter((type) => type.startsWith('server') || type === 'journal'),
    ['server-add', 'journal', 'server-close'],
  )
})

test('a lease is in the journal before it is granted', () => {
  const { desk } = asyncDesk(['a'])
  const order = desk.effects.map((effect) => (effect.type === 'send' ? effect.message.type : effect.type))
  assert.ok(order.indexOf('journal') < order.indexOf('grant'))
})

test('threat 26: ten thousand requests for work write few journal rows, and a restart repeats no number', () => {
  const { desk } = asyncDesk(['a'])
  const before = desk.entries.length
  for (let i = 0; i < 10_000; i++) desk.say('a', { type: 'lease-request', modeEpoch: desk.state.modeEpoch })
  assert.ok(desk.entries.length - before <= 12, `${desk.entries.length - before} rows`)
  const given = desk.state.leaseEpoch
  assert.ok(given > 10_000)
  const restarted = new Desk({}, desk)
  assert.ok(restarted.state.leaseEpoch >= given, 'R16')
})

test('a push counts once', () => {
  const {
    desk,
    grants: [a],
  } = asyncDesk(['a'])
  assert.ok(a)
  assert.equal(push(desk, 'a', a), 'received')
  assert.equal(push(desk, 'a', a), 'duplicate')
})

test('a push is refused by name when its mode, lease, holder or content is not right', () => {
  const {
    desk,
    grants: [a],
  } = asyncDesk(['a'])
  assert.ok(a)
  assert.equal(push(desk, 'a', a, { modeEpoch: a.modeEpoch - 1 }), 'mode-stale')
  assert.equal(push(desk, 'b', a), 'lease-stale')
  assert.equal(
    push(desk, 'a', { ...a, leases: a.leases.map((token) => ({ ...token, leaseEpoch: token.leaseEpoch + 1 })) }),
    'lease-stale',
  )
  assert.equal(push(desk, 'a', { ...a, leases: [...a.leases, ...a.leases] }), 'duplicate')
  assert.equal(push(desk, 'a', a, { samples: 0 }), 'message-malformed')
  assert.equal(push(desk, 'a', a, { base: { v: 0, id: hashOf('elsewhere') as never } }), 'base-stale')
  assert.equal(desk.state.chain.head.v, 0)
})

test('a push that is too far behind is refused and its blocks go back', () => {
  const {
    desk,
    grants: [a, b],
  } = asyncDesk(['a', 'b'], { blocks: 12, batchBlocks: 1, timing: { stalenessBound: 2 } })
  assert.ok(a && b)
  let next = a
  for (let i = 0; i < 3; i++, next = ask(desk, 'a')) assert.equal(push(desk, 'a', next), 'received')
  assert.equal(push(desk, 'b', b), 'base-stale')
  assert.deepEqual(blocksOf(ask(desk, 'b')), blocksOf(b))
})

test('an old push is damped by how far it is behind', () => {
  const {
    desk,
    grants: [a, b],
  } = asyncDesk(['a', 'b'])
  assert.ok(a && b)
  push(desk, 'a', a)
  push(desk, 'b', b)
  assert.deepEqual(
    desk.effects.flatMap((effect) => (effect.type === 'server-add' ? [effect.damping] : [])),
    [0.5],
  )
})

test('the parameter server stops, and the run goes on from its newest checkpoint', () => {
  const {
    desk,
    grants: [a],
  } = asyncDesk(['a'])
  assert.ok(a)
  push(desk, 'a', a)
  const { modeEpoch } = desk.state
  desk.feed({ type: 'server-lost', reason: 'a thread ended' })
  assert.equal(desk.phase, 'freeze')
  desk.answer('a')
  assert.deepEqual(
    desk.journalled('rewind').map(({ to }) => to.v),
    [0],
  )
  desk.answer('a')
  assert.deepEqual([desk.phase, desk.state.chain.head.v], ['async', 0])
  assert.ok(desk.state.modeEpoch > modeEpoch)
  assert.deepEqual(blocksOf(ask(desk, 'a')), blocksOf(a))
})

test('the blocks of a member that leaves go to the next at once', () => {
  const {
    desk,
    grants: [a],
  } = asyncDesk(['a', 'b'])
  assert.ok(a)
  desk.lose('a')
  const again = ask(desk, 'b')
  assert.deepEqual(blocksOf(again), blocksOf(a))
  assert.ok((again.leases[0]?.leaseEpoch ?? 0) > (a.leases[0]?.leaseEpoch ?? 0))
})

test('who asks again without a push gave its lease up, and is served after the others', () => {
  const {
    desk,
    grants: [a],
  } = asyncDesk(['a', 'b'], { blocks: 6, batchBlocks: 3 })
  assert.ok(a)
  desk.say('b', { type: 'lease-request', modeEpoch: desk.state.modeEpoch })
  desk.say('a', { type: 'lease-request', modeEpoch: desk.state.modeEpoch })
  assert.equal(desk.state.members.get(memberId('a'))?.missedLeases, 1)
  assert.equal(desk.state.leases.size, 6)
})

test('a lease that runs out goes to another, and the next one of the same member is longer', () => {
  const {
    desk,
    grants: [a],
  } = asyncDesk(['a'])
  assert.ok(a)
  desk.wait(a.deadlineMs + 1)
  assert.equal(desk.state.leases.size, 0)
  assert.ok(ask(desk, 'a').deadlineMs > a.deadlineMs)
  assert.equal(push(desk, 'a', a), 'lease-stale')
})

function refuse(
  desk: Desk,
  name: string,
  { modeEpoch, base, leases }: Pick<MessageTo<'grant'>, 'modeEpoch' | 'base' | 'leases'>,
): void {
  desk.feed({
    type: 'push-refused',
    code: 'gradient-not-finite',
    push: { incarnation: memberId(name), modeEpoch, base, leases, samples: 1, targets: 1, lossSum: 0, correct: 0 },
  })
}

test('threat 40: one member that fails on purpose sets no block aside: it loses its work, then its session', () => {
  const {
    desk,
    grants: [first],
  } = asyncDesk(['a'], { blocks: 6, batchBlocks: 1, epochs: 2 })
  let grant = first
  for (let i = 0; i < 100 && desk.state.members.size > 0; i++) {
    if (grant !== undefined) refuse(desk, 'a', grant)
    desk.say('a', { type: 'lease-request', modeEpoch: desk.state.modeEpoch })
    grant = desk.sent('grant')[0]
    if (grant === undefined) grant = (desk.wait(60_000), desk.sent('grant')[0])
  }
  assert.equal(desk.state.members.size, 0)
  assert.deepEqual([desk.state.quarantined.size, desk.state.finished, desk.state.chain.head.v], [0, undefined, 0])
})

test('a block that fails with three different members is set aside, and the owner sees it', () => {
  const names = ['a', 'b', 'c', 'd']
  const { desk, grants } = asyncDesk(names, { blocks: 4, batchBlocks: 1, epochs: 1 })
  const bad = grants[0]?.leases[0]?.block
  const tried: string[] = []
  const work = (name: string, grant: MessageTo<'grant'> | undefined): void => {
    if (grant === undefined) return
    if (!blocksOf(grant).includes(bad ?? assert.fail())) return void push(desk, name, grant)
    tried.push(name)
    refuse(desk, name, grant)
  }
  for (const [i, grant] of grants.entries()) work(names[i] ?? '', grant)
  for (let i = 0; i < 12 && !desk.state.quarantined.size; i++) {
    const name = names[i % names.length] ?? ''
    desk.say(name, { type: 'lease-request', modeEpoch: desk.state.modeEpoch })
    work(
      name,
      desk.sent('grant').find(({ to }) => to === memberId(name)),
    )
  }
  assert.deepEqual([...desk.state.quarantined], [bad])
  assert.equal(new Set(tried).size, 3)
  assert.equal(tried.length, 3)
})

/** The first block of the first epoch that is not done, in its seeded order. */
function nextOf({ state }: Desk): BlockId {
  const order = [...epochOrder(state.config.seed, 0, state.config.blocks)].map((i) => trainingBlock(0, i))
  return order.find((block) => !state.chain.isDone(block)) ?? assert.fail()
}

/** Each asks in turn and pushes, 400 ms apart; blocks in `bad` are refused. Returns who tried those. */
function workWith(desk: Desk, names: readonly string[], bad: ReadonlySet<string>, done: () => boolean): string[] {
  const tried: string[] = []
  const granted = new Map<string, Grant>()
  const take = (): void => desk.sent('grant').forEach((grant) => void granted.set(grant.to, grant))
  for (let i = 0; i < 400 && !done(); i++) {
    desk.wait(400)
    take()
    const name = names[i % names.length] ?? ''
    if (!granted.has(name)) desk.say(name, { type: 'lease-request', modeEpoch: desk.state.modeEpoch })
    take()
    const grant = granted.get(name)
    if (grant === undefined || !granted.delete(name)) continue
    const isBad = blocksOf(grant).some((block) => bad.has(block))
    if (isBad) tried.push(name)
    if (isBad) refuse(desk, name, grant)
    else push(desk, name, grant)
    take()
  }
  return tried
}

for (const names of [['a'], ['a', 'b']])
  test(`a run of ${names.length} ends although two of its blocks always fail, and the owner is told`, () => {
    const { desk, grants } = asyncDesk(names, { blocks: 8, batchBlocks: 1, epochs: 1 })
    const bad = new Set(['0:2', '0:5'])
    for (const [i, grant] of grants.entries()) push(desk, names[i] ?? '', grant)
    const done = new Set(grants.flatMap(blocksOf))
    for (const block of done) bad.delete(block)
    const began = desk.now
    const notes: string[] = []
    const { feed } = desk
    desk.feed = (input) => {
      const effects = feed.call(desk, input)
      for (const effect of effects) if (effect.type === 'note') notes.push(effect.text)
      return effects
    }
    const tried = workWith(desk, names, bad, () => desk.state.chain.doneIn(0) + desk.state.quarantined.size === 8)
    assert.deepEqual(new Set(desk.state.quarantined), bad)
    assert.equal(desk.state.chain.doneIn(0), 8 - bad.size, 'all others are trained')
    assert.equal(desk.state.members.size, names.length, 'no volunteer lost its session for data that is bad')
    assert.ok(names.every((name) => tried.filter((one) => one === name).length >= 3))
    assert.ok(desk.now - began >= 10_000, 'the tries are spaced')
    for (const block of bad) assert.ok(notes.some((text) => text.includes(`block ${block} failed 3 times with each`)))
    desk.wait(1000)
    assert.match(desk.state.phaseReason, /^trained/)
  })

test('of two members one that fails on purpose sets nothing aside while the other works', () => {
  const { desk, grants } = asyncDesk(['a', 'liar'], { blocks: 40, batchBlocks: 1, epochs: 1 })
  for (const [i, grant] of grants.entries()) push(desk, ['a', 'liar'][i] ?? '', grant)
  const [left] = [...Array(40).keys()]
    .map((i) => trainingBlock(0, i))
    .filter((block) => !desk.state.chain.isDone(block))
  const bad = left ?? assert.fail()
  const tried = workWith(desk, ['liar'], new Set([bad]), () => desk.now > 30_000)
  assert.ok(tried.length > 0)
  assert.deepEqual([...desk.state.quarantined], [])
  workWith(desk, ['a'], new Set(), () => desk.state.chain.isDone(bad))
  assert.ok(desk.state.chain.isDone(bad), 'the other member computed it')
  assert.deepEqual([...desk.state.quarantined], [])
})

test('a block that one member set aside is tried again by the second, and set aside when both fail', () => {
  const {
    desk,
    grants: [first],
  } = asyncDesk(['a'], { blocks: 40, batchBlocks: 1, epochs: 1 })
  push(desk, 'a', first ?? assert.fail())
  const bad = nextOf(desk)
  workWith(desk, ['a'], new Set([bad]), () => desk.state.quarantined.has(bad))
  assert.deepEqual([...desk.state.quarantined], [bad])
  desk.join('b')
  assert.deepEqual([...desk.state.quarantined], [bad], 'it only came')
  const grant = ask(desk, 'b')
  assert.deepEqual([...desk.state.quarantined], [])
  assert.deepEqual(blocksOf(grant), [bad], 'the newcomer tries it first')
  refuse(desk, 'b', grant)
  assert.deepEqual([...desk.state.quarantined], [], 'one try is not enough')
  for (let i = 0; i < 3 && !desk.state.quarantined.has(bad); i++) {
    desk.wait(5000)
    workWith(desk, ['b', 'a'], new Set([bad]), () => desk.state.quarantined.has(bad))
  }
  assert.deepEqual([...desk.state.quarantined], [bad])
})

test('pushes of zeros in a row end the session of the member that makes them', () => {
  const {
    desk,
    grants: [first],
  } = asyncDesk(['a'], { blocks: 60, batchBlocks: 1, epochs: 1 })
  let grant: Grant | undefined = first
  for (let i = 0; i < 20 && desk.state.members.size > 0; i++) {
    if (grant !== undefined) push(desk, 'a', grant, { norms: { gradient: 0, statistics: 0 } })
    desk.say('a', { type: 'lease-request', modeEpoch: desk.state.modeEpoch })
    grant = desk.sent('grant')[0] ?? (desk.wait(600_000), desk.sent('grant')[0])
  }
  assert.equal(desk.state.members.size, 0)
})

test('blocks of a failed push are leased alone, so that only the culprit is set aside', () => {
  const {
    desk,
    grants: [a],
  } = asyncDesk(['a'])
  assert.ok(a)
  assert.equal(blocksOf(a).length, 3)
  const { modeEpoch, base, leases } = a
  desk.feed({
    type: 'push-refused',
    code: 'gradient-not-finite',
    push: { incarnation: memberId('a'), modeEpoch, base, leases, samples: 3, targets: 3, lossSum: 0, correct: 0 },
  })
  const other = ask(desk, 'a')
  assert.ok(
    blocksOf(other).every((block) => !blocksOf(a).includes(block)),
    'other blocks first',
  )
  push(desk, 'a', other)
  desk.wait(5000)
  const again = ask(desk, 'a')
  assert.deepEqual(blocksOf(again), blocksOf(a).slice(0, 1))
  push(desk, 'a', again)
  assert.deepEqual(blocksOf(ask(desk, 'a')), blocksOf(a).slice(1, 2))
})

test('a block that failed with one member is not kept for another that never brings a lease back', () => {
  const {
    desk,
    grants: [a],
  } = asyncDesk(['a'], { blocks: 1, batchBlocks: 1 })
  assert.ok(a)
  desk.join('b', 'silent')
  desk.say('b', { type: 'lease-request', modeEpoch: a.modeEpoch })
  const { modeEpoch, base, leases } = a
  desk.feed({
    type: 'push-refused',
    code: 'gradient-not-finite',
    push: { incarnation: memberId('a'), modeEpoch, base, leases, samples: 1, targets: 1, lossSum: 0, correct: 0 },
  })
  const [second] = desk.sent('grant')
  assert.ok(second)
  assert.deepEqual([second.to, blocksOf(second)], ['b', blocksOf(a)], 'another one tries first')
  desk.say('a', { type: 'lease-request', modeEpoch })
  assert.deepEqual(desk.sent('grant'), [])
  desk.say('b', { type: 'gave-back', leases: [...second.leases], code: 'link-lost', message: 'no line' })
  desk.wait(5000)
  assert.deepEqual(
    desk.sent('grant').map(({ to }) => to),
    [memberId('a')],
    'then the first one again',
  )
})

test('a run pauses with a named reason, and is not finished, when most of an epoch is set aside', () => {
  const { desk, grants } = asyncDesk(['a'], { blocks: 1, batchBlocks: 1, epochs: 2 })
  const [grant] = grants
  assert.ok(grant)
  push(desk, 'a', grant)
  applyEntry(desk.state, { type: 'quarantine', block: trainingBlock(1, 0) }, 0)
  desk.wait(1000)
  assert.match(desk.state.phaseReason, /paused: most blocks of epoch 2 are set aside/)
  assert.equal(desk.state.finished, undefined)
})

test('from the ring, the server takes over in one append: records, checkpoint, mode', () => {
  const desk = new Desk({ mode: 'auto', minVolunteers: 2, timing: { abortsBeforeFallback: 1 } })
  desk.join('a', 'b')
  desk.run('a', 'b')
  const held = desk.record(1)
  desk.say('a', { type: 'abort', step: 1, blamed: null, why: 'own', links: [], code: 'link-lost', message: 'test' })
  desk.answer('a', [held])
  desk.answer('b', [held])
  const [request] = desk.sent('upload-request')
  assert.deepEqual([request?.to, request?.version.v], ['a', 1])
  assert.ok(request)
  desk.feed({ type: 'uploaded', member: memberId('a'), version: request.version, blob: hashOf('state'), bytes: 1 })
  desk.say('b', { type: 'version-digest', version: request.version, digest: hashOf('state') })
  const types = desk.effects.flatMap((effect) =>
    effect.type === 'journal' ? effect.entries.map(({ type }) => type) : [],
  )
  assert.deepEqual(types, ['commit', 'checkpoint', 'mode'])
  assert.deepEqual(
    desk.effects.flatMap((effect) => (effect.type === 'server-load' ? [effect.checkpoint.version.v] : [])),
    [1],
  )
  assert.deepEqual(
    desk.sent('async').map(({ to }) => to),
    ['a', 'b'],
  )
})

test('a source that does not upload is not asked again at once', () => {
  const desk = new Desk({ mode: 'auto', minVolunteers: 2, timing: { abortsBeforeFallback: 1 } })
  desk.join('a', 'b')
  desk.run('a', 'b')
  desk.step(1)
  desk.say('a', { type: 'abort', step: 2, blamed: null, why: 'own', links: [], code: 'link-lost', message: 'test' })
  desk.answer('a', [])
  desk.answer('b', [])
  const [first] = desk.sent('upload-request')
  desk.wait(30_000)
  desk.answer('a', [])
  desk.answer('b', [])
  assert.deepEqual([first?.uploader, desk.sent('upload-request')[0]?.uploader].toSorted(), ['a', 'b'])
})

test('when no holder uploads, a ring makes more holders', () => {
  const desk = new Desk({ mode: 'auto', timing: { abortsBeforeFallback: 1 } })
  desk.join('a')
  desk.run('a')
  desk.step(1)
  desk.say('a', { type: 'abort', step: 2, blamed: null, why: 'own', links: [], code: 'link-lost', message: 'test' })
  desk.answer('a', [])
  desk.join('b')
  desk.wait(30_000)
  desk.answer('b')
  desk.answer('a', [])
  assert.deepEqual(
    desk.sent('form').map(({ target, sources }) => [target.v, sources]),
    [[1, ['a']]],
  )
})

test('back to the ring: the mode epoch first, then the newest version as a checkpoint, then a ballot', () => {
  const desk = new Desk({ mode: 'auto', minVolunteers: 2, timing: { abortsBeforeFallback: 1 } })
  desk.join('a', 'b')
  desk.run('a', 'b')
  desk.say('a', { type: 'abort', step: 1, blamed: null, why: 'own', links: [], code: 'link-lost', message: 'test' })
  desk.answer('a')
  desk.answer('b')
  const [a, b] = [ask(desk, 'a'), ask(desk, 'b')]
  push(desk, 'a', a)
  const { modeEpoch } = desk.state
  desk.wait(20_000)
  assert.deepEqual([desk.mode, desk.state.modeEpoch], ['ring', modeEpoch + 1])
  assert.equal(push(desk, 'b', b), 'mode-stale')
  const version = desk.state.chain.head
  desk.feed({ type: 'server-checkpoint', version, blob: hashOf('state'), bytes: 1 })
  assert.equal(desk.phase, 'freeze')
  assert.deepEqual(
    desk.effects.map(({ type }) => type).filter((type) => type === 'server-unload'),
    ['server-unload'],
  )
  desk.answer('a', [], desk.state.config.genesis)
  desk.answer('b')
  assert.deepEqual(
    desk.sent('form').map(({ to, target, coordinatorHolds }) => [to, target.v, coordinatorHolds]),
    [['b', 1, true]],
    'a is out of the ring for a while',
  )
})

test('back to the ring with an open sum: it becomes a version of its own mode epoch first', () => {
  const desk = new Desk({
    mode: 'auto',
    minVolunteers: 2,
    timing: { abortsBeforeFallback: 1 },
    async: { ...DEFAULT_ASYNC, update: 'proportion', proportion: 2 },
  })
  desk.join('a', 'b')
  desk.run('a', 'b')
  desk.say('a', { type: 'abort', step: 1, blamed: null, why: 'own', links: [], code: 'link-lost', message: 'test' })
  desk.answer('a')
  desk.answer('b')
  const { modeEpoch } = desk.state
  const a = ask(desk, 'a')
  push(desk, 'a', a)
  assert.equal(desk.state.open.pushes.length, 1)
  desk.wait(20_000)
  assert.deepEqual(
    desk.effects.flatMap((effect) => {
      if (effect.type === 'journal') return effect.entries.map(({ type }) => type)
      return effect.type.startsWith('server') ? [effect.type] : []
    }),
    ['commit', 'server-close', 'mode', 'server-checkpoint'],
  )
  assert.deepEqual(
    desk.state.chain.records.map((record) => [record.modeEpoch, record.blocks]),
    [[modeEpoch, blocksOf(a)]],
  )
})

test("a coordinator that restarts in async mode goes back to the server's checkpoint, and to new leases", () => {
  const {
    desk,
    grants: [a],
  } = asyncDesk(['a'])
  assert.ok(a)
  push(desk, 'a', a)
  const restarted = new Desk({ mode: 'async' }, desk)
  assert.equal(restarted.state.chain.head.v, 0)
  assert.equal(restarted.phase, 'async')
  assert.ok(restarted.state.modeEpoch > desk.state.modeEpoch)
  restarted.join('a')
  const again = ask(restarted, 'a')
  assert.deepEqual(blocksOf(again), blocksOf(a))
  assert.ok((again.leases[0]?.leaseEpoch ?? 0) > (a.leases[0]?.leaseEpoch ?? 0), 'lease epochs outlive the rewind')
})

test('a hidden tab gets twice as long for its lease, until it is seen again', () => {
  const {
    desk,
    grants: [first],
  } = asyncDesk(['tab'])
  const look = (hidden: boolean): number => {
    desk.feed({ type: 'speed', member: memberId('tab'), samplesPerSecond: 100, hidden })
    const { deadlineMs } = ask(desk, 'tab')
    const member = desk.state.members.get(memberId('tab'))
    return deadlineMs / 2 ** (member?.missedLeases ?? 0) // who asks without a push gets a longer one for that, too
  }
  assert.deepEqual([look(true), look(false)], [2 * (first?.deadlineMs ?? 0), first?.deadlineMs])
})

test('threat 40: first pushes wait until two members agree on a norm; then an enormous one is bounded', () => {
  const {
    desk,
    grants: [a, b],
  } = asyncDesk(['a', 'b'], { blocks: 60, batchBlocks: 1, epochs: 1 })
  own(desk.state, 'pushNorms').clear()
  assert.ok(a && b)
  assert.equal(push(desk, 'a', a, { norms: { gradient: 1e37, statistics: 0 } }), 'gradient-unproven')
  assert.equal(desk.state.chain.head.v, 0)
  assert.equal(push(desk, 'b', b), 'received')
  assert.equal(push(desk, 'a', ask(desk, 'a'), { norms: { gradient: 1e37, statistics: 0 } }), 'received')
  const added = desk.effects.flatMap((effect) => (effect.type === 'server-add' ? [effect.damping] : []))
  assert.ok((added[0] ?? 1) * 1e37 < 5, `${(added[0] ?? 1) * 1e37} times a usual one`)
})

test('threat 45: pushes of zeros are no work, bound nothing and let no later push through', () => {
  const {
    desk,
    grants: [a, b],
  } = asyncDesk(['a', 'b'], { blocks: 60, batchBlocks: 1, epochs: 1 })
  assert.ok(a && b)
  assert.equal(push(desk, 'a', a, { norms: { gradient: 0, statistics: 0 } }), 'gradient-outlier')
  assert.equal(desk.state.chain.head.v, 0)
  assert.deepEqual(own(desk.state, 'pushNorms').of(memberId('a')), [{ gradient: 1, statistics: 1 }])
  assert.equal(push(desk, 'b', b), 'received')
})

test('a member alone is not compared with others that gave up, and works', () => {
  const {
    desk,
    grants: [a],
  } = asyncDesk(['a', 'b'], { blocks: 60, batchBlocks: 1, epochs: 1 })
  own(desk.state, 'pushNorms').clear()
  desk.say('b', { type: 'lease-request', modeEpoch: desk.state.modeEpoch })
  assert.equal(push(desk, 'a', a ?? assert.fail(), { norms: { gradient: 3, statistics: 0 } }), 'received')
})

test('after every so many versions no lease is granted until those that are out came back, and it is validated', () => {
  const { desk, grants } = asyncDesk(['a', 'b'], {
    blocks: 40,
    batchBlocks: 1,
    validationBlocks: 1,
    evaluate: { everySteps: 2 },
  })
  const [a, b] = grants
  assert.ok(a && b)
  push(desk, 'a', a)
  const next = ask(desk, 'a')
  push(desk, 'b', b)
  assert.equal(desk.state.chain.head.v, 2)
  desk.say('b', { type: 'lease-request', modeEpoch: desk.state.modeEpoch })
  assert.deepEqual([desk.sent('grant'), desk.sent('validate')], [[], []], 'a holds a lease yet')
  push(desk, 'a', next)
  const orders = desk.sent('validate')
  assert.deepEqual(
    orders.map(({ to, version }) => [to, version.v]),
    [
      ['a', 3],
      ['b', 3],
    ],
  )
  for (const { to, version, leases } of orders)
    for (const lease of leases)
      desk.say(to, { type: 'validated', version, lease, samples: 1, targets: 1, correct: 1, lossSum: 1 })
  assert.equal(desk.state.evaluations.at(-1)?.version.v, 3)
  assert.deepEqual(
    desk.sent('grant').map(({ to }) => to),
    ['b'],
    'who asked meanwhile gets work',
  )
})
