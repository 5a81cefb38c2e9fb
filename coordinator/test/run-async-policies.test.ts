// When pushes become a version, which members wait, and what late pushes are worth: the settings of async mode.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { asyncPolicy, DEFAULT_ASYNC } from '@starling-grid/coordinator/run'
import { type BlockId, memberId } from '@starling-grid/protocol'
import { ask, blocksOf, type Grant, push } from './async-desk.ts'
import { Desk, type DeskOptions } from './run-desk.ts'

const all = { async: { ...DEFAULT_ASYNC, update: 'all', maxStaleness: 0, whenStale: 'wait' } } as const

/** Pushes that all have grants, until each member has pushed once and is waited for. */
function warmUp(desk: Desk, names: readonly string[]): Map<string, Grant> {
  const grants = new Map<string, Grant>()
  const collect = (): void => {
    for (const { to, ...grant } of desk.sent('grant')) grants.set(to, grant as Grant)
  }
  const request = (name: string): void => {
    desk.say(name, { type: 'lease-request', modeEpoch: desk.state.modeEpoch })
    collect()
  }
  for (const name of names) request(name)
  for (let transition = 0; desk.state.workers.size < names.length; transition++) {
    assert.ok(transition < 20, 'all come to their turn')
    for (const name of names) {
      const grant = grants.get(name)
      if (grant === undefined) continue
      grants.delete(name)
      assert.equal(push(desk, name, grant), 'received')
      collect()
      request(name)
    }
  }
  return grants
}

function inAsyncMode(names: readonly string[], options: DeskOptions): Desk {
  const desk = new Desk({ mode: 'async', minVolunteers: names.length, blocks: 60, batchBlocks: 6, ...options })
  desk.join(...names)
  for (const name of names) desk.answer(name)
  return desk
}

test('with update "all", a version is one push of each member, and who is done waits for the slowest', () => {
  const names = ['a', 'b', 'c']
  const desk = inAsyncMode(names, all)
  const grants = warmUp(desk, names)
  const from = desk.state.chain.records.length
  const doneBy = new Map<BlockId, string>()
  const collect = (): void => {
    for (const { to, ...grant } of desk.sent('grant')) grants.set(to, grant as Grant)
  }
  for (let i = 0; i < 18; i++) {
    // the quickest first, as long as it has work: c comes only when no other can continue
    const [name = 'none', grant] = [...grants].toSorted(([one], [other]) => (one < other ? -1 : 1))[0] ?? []
    assert.ok(grant, 'somebody always has work')
    grants.delete(name)
    for (const block of blocksOf(grant)) doneBy.set(block, name)
    assert.equal(push(desk, name, grant), 'received')
    collect()
    desk.say(name, { type: 'lease-request', modeEpoch: desk.state.modeEpoch })
    collect()
  }
  const made = desk.state.chain.records.slice(from + 1) // the first may hold larger leases of the start
  assert.ok(made.length >= 4)
  for (const { samples, blocks } of made)
    assert.deepEqual([samples, [...new Set(blocks.map((block) => doneBy.get(block)))].toSorted()], [6, names])
})

test('with update "all", members do not wait for a member that lets its lease run out', () => {
  const desk = inAsyncMode(['a', 'b'], all)
  const grants = warmUp(desk, ['a', 'b'])
  const [held] = [...grants]
  assert.ok(held)
  const silent = held[0]
  const other = silent === 'a' ? 'b' : 'a'
  desk.wait(700_000)
  assert.deepEqual(
    [...desk.state.workers].filter((id) => id === silent),
    [],
  )
  const { v } = desk.state.chain.head
  for (let i = 0; i < 3; i++) assert.equal(push(desk, other, ask(desk, other)), 'received')
  assert.ok(desk.state.chain.head.v >= v + 3)
})

test('with a proportion, half of the members make a version, of as many samples as a global batch', () => {
  const names = ['a', 'b', 'c', 'd']
  const desk = inAsyncMode(names, { async: { ...DEFAULT_ASYNC, update: 'proportion', proportion: 0.5 } })
  const grants = warmUp(desk, names)
  for (const [name, grant] of grants) push(desk, name, grant)
  const from = desk.state.chain.records.length
  const open = desk.state.open.pushes.length
  const fresh = names.map((name) => [name, ask(desk, name)] as const)
  for (const [name, grant] of fresh) {
    assert.equal(grant.leases.length, 3, 'half of a batch')
    assert.equal(push(desk, name, grant), 'received')
  }
  const made = desk.state.chain.records.slice(from)
  assert.equal(made.length, Math.floor((open + 4) / 2))
  assert.equal(made.at(-1)?.samples, 6)
  assert.equal(made.at(-1)?.lossSum, 2, 'of two pushes')
})

test('a block in the open sum counts once: it is neither leased nor taken again', () => {
  const desk = inAsyncMode(['a', 'b'], {
    blocks: 6,
    batchBlocks: 4,
    async: { ...DEFAULT_ASYNC, update: 'proportion', proportion: 2 },
  })
  const a = ask(desk, 'a')
  assert.equal(push(desk, 'a', a), 'received')
  assert.deepEqual([desk.state.chain.head.v, desk.state.open.blocks.size], [0, 2])
  assert.equal(push(desk, 'a', a), 'duplicate')
  const b = ask(desk, 'b')
  assert.deepEqual(
    blocksOf(b).filter((block) => blocksOf(a).includes(block)),
    [],
  )
  assert.equal(push(desk, 'b', b), 'received')
  assert.deepEqual(
    desk.state.chain.records.map(({ blocks }) => blocks),
    [[...blocksOf(a), ...blocksOf(b)]],
  )
})

test('the last blocks of an epoch are a version although fewer pushes came than one takes', () => {
  const desk = inAsyncMode(['a'], {
    blocks: 3,
    batchBlocks: 2,
    epochs: 1,
    async: { ...DEFAULT_ASYNC, update: 'proportion', proportion: 2 },
  })
  for (let i = 0; i < 3; i++) push(desk, 'a', ask(desk, 'a'))
  assert.deepEqual(
    desk.state.chain.records.map(({ blocks }) => blocks.length),
    [2, 1],
  )
})

test('with a bound on staleness that members keep, no push is ever too late', () => {
  for (const bound of [0, 1, 3]) {
    const desk = inAsyncMode(['slow', 'quick', 'other'], {
      batchBlocks: 1,
      async: { ...DEFAULT_ASYNC, maxStaleness: bound, whenStale: 'wait' },
    })
    const slow = ask(desk, 'slow')
    const grants = new Map<string, Grant>()
    let pushes = 0
    for (let transition = 0; transition < 10; transition++)
      for (const name of ['quick', 'other']) {
        if (!grants.has(name) && desk.state.members.get(memberId(name))?.awaitingLease !== true) {
          desk.say(name, { type: 'lease-request', modeEpoch: desk.state.modeEpoch })
          for (const { to, ...grant } of desk.sent('grant')) grants.set(to, grant as Grant)
        }
        const grant = grants.get(name)
        if (grant === undefined) continue
        grants.delete(name)
        assert.equal(push(desk, name, grant), 'received')
        pushes++
      }
    assert.equal(pushes, bound, 'then they wait for the slowest')
    assert.match(desk.state.phaseReason, /wait for the slowest/)
    assert.equal(push(desk, 'slow', slow), 'received')
    assert.ok(desk.sent('grant').length > 0, 'and go on when it came')
  }
})

test("damping and bound are the job's own where it names them", () => {
  const desk = inAsyncMode(['a', 'b'], {
    batchBlocks: 1,
    async: { ...DEFAULT_ASYNC, maxStaleness: 1, damping: 'none' },
  })
  const late = ask(desk, 'b')
  push(desk, 'a', ask(desk, 'a'))
  assert.equal(push(desk, 'b', late), 'received')
  assert.deepEqual(
    desk.effects.flatMap((effect) => (effect.type === 'server-add' ? [effect.damping] : [])),
    [1],
  )
  const old = ask(desk, 'b')
  for (let i = 0; i < 2; i++) push(desk, 'a', ask(desk, 'a'))
  assert.equal(push(desk, 'b', old), 'base-stale')
})

test('settings that contradict each other are refused when the job is submitted', () => {
  assert.deepEqual(asyncPolicy(undefined, 12), DEFAULT_ASYNC)
  assert.deepEqual(asyncPolicy({ delayCompensation: 0.04 }, 12), {
    ...DEFAULT_ASYNC,
    delayCompensation: 0.04,
    damping: 'none',
    maxStaleness: 11,
  })
  assert.deepEqual(asyncPolicy({ update: 'all' }, 12), { ...DEFAULT_ASYNC, ...all.async })
  for (const wrong of [
    { proportion: 0.5 },
    { update: 'all', maxStaleness: 2 },
    { update: 'all', whenStale: 'drop' },
    { delayCompensation: 1, maxStaleness: 12 },
  ] as const)
    assert.throws(() => asyncPolicy(wrong, 12), { code: 'job-invalid' })
})
