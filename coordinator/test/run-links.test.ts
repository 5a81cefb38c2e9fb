// Bad links and bad members (R17, R18): what ABORTs tell of them, and what the next ring looks like.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import {
  badMember,
  cure,
  type LinkFailure,
  linkAll,
  linkVerdict,
  noteFailure,
  orderRing,
} from '@starling-grid/coordinator/run'
import { memberId, type MemberId } from '@starling-grid/protocol'
import { linksToRelay, meetings } from '../src/run/links/source-links.ts'
import { Desk, type DeskOptions } from './run-desk.ts'

const HALF_LIFE = 600_000
const ids = (text: string): MemberId[] => [...text].map(memberId)

function failed(pair: string, change: Partial<LinkFailure> = {}): LinkFailure {
  const [a = memberId(''), b = memberId('')] = ids(pair)
  return { pair: [a, b], why: 'unopened', relayed: false, generation: 1, at: 0, ...change }
}

const verdictOf = (failures: readonly LinkFailure[], pair: string, now = 0) => {
  const [a = memberId(''), b = memberId('')] = ids(pair)
  return linkVerdict(failures, a, b, { now, halfLifeMs: HALF_LIFE })
}

describe('one link', () => {
  test('is bad when it did not open, whichever of the two reports it, and good again after a while', () => {
    const failures = [failed('ab')]
    assert.deepEqual(
      [verdictOf(failures, 'ab'), verdictOf(failures, 'ba'), verdictOf(failures, 'ac')],
      ['bad', 'bad', 'good'],
    )
    assert.equal(verdictOf(failures, 'ab', HALF_LIFE + 1), 'good')
  })

  test('is bad when it broke twice, not when it broke once', () => {
    const once = [failed('ab', { why: 'silent' })]
    assert.equal(verdictOf(once, 'ab'), 'good')
    assert.equal(verdictOf([...once, failed('ab', { why: 'closed', generation: 2 })], 'ab'), 'bad')
  })

  test('is dead when the relay did not help', () => {
    assert.equal(verdictOf([failed('ab'), failed('ab', { relayed: true, generation: 2 })], 'ab'), 'dead')
  })

  test('is counted once for a generation, although both ends report it', () => {
    const hindsight = { now: 0, halfLifeMs: HALF_LIFE }
    const first = noteFailure([], failed('ab', { why: 'silent' }), hindsight)
    assert.equal(noteFailure(first, failed('ba', { why: 'closed' }), hindsight).length, 1)
    assert.equal(noteFailure(first, failed('ba', { why: 'closed', generation: 2 }), hindsight).length, 2)
  })

  test('that opens again is believed after a while that doubles with every failure', () => {
    const [a, b] = [memberId('a'), memberId('b')]
    let failures: readonly LinkFailure[] = []
    for (const [generation, wait] of [10_000, 20_000, 40_000].entries()) {
      failures = noteFailure(failures, failed('ab', { generation, at: 0 }), { now: 0, halfLifeMs: HALF_LIFE })
      assert.equal(cure(failures, a, b, wait - 1), undefined)
      failures = cure(failures, a, b, wait) ?? []
      assert.deepEqual([failures.length, verdictOf(failures, 'ab')], [generation + 1, 'good'])
    }
  })

  test('is forgotten in the end, and the memory is bounded', () => {
    const later = { now: 6 * HALF_LIFE, halfLifeMs: HALF_LIFE }
    assert.equal(noteFailure([failed('ab')], failed('cd', { at: later.now }), later).length, 1)
    let many: LinkFailure[] = []
    for (let generation = 0; generation < 1000; generation++)
      many = noteFailure(many, failed('ab', { generation }), { now: 0, halfLifeMs: HALF_LIFE })
    assert.equal(many.length, 256)
  })
})

describe('one member', () => {
  const judge = (failures: readonly LinkFailure[], members: string, now = 0) =>
    badMember(failures, ids(members), { now, halfLifeMs: HALF_LIFE })

  test('is bad when its links with two others broke, one after the other', () => {
    const breaks = [failed('ac', { why: 'closed' }), failed('bc', { why: 'silent', generation: 2 })]
    assert.equal(judge(breaks, 'abc')?.id, 'c')
    assert.equal(judge(breaks, 'abc', 61_000), undefined, 'that was long ago')
  })

  test('is not bad for one bad link, nor for one bad moment of all its links', () => {
    assert.equal(
      judge([failed('ac', { why: 'closed' }), failed('ac', { why: 'closed', generation: 2 })], 'abc'),
      undefined,
    )
    assert.equal(judge([failed('ac', { why: 'closed' }), failed('bc', { why: 'closed' })], 'abc'), undefined)
  })

  test('is bad when it cannot link to three others, in a ring that has others to offer', () => {
    const failures = [failed('ae'), failed('be', { generation: 2 }), failed('ce', { generation: 3 })]
    assert.equal(judge(failures.slice(0, 2), 'abcde'), undefined)
    const found = judge(failures, 'abcde')
    assert.deepEqual([found?.id, found?.why], ['e', 'it cannot link to 3 others'])
  })

  test('threat 37: in a ring of four two accusers are not believed; three are, and so are two digests', () => {
    const said = [failed('ad', { why: 'refused' }), failed('bd', { why: 'closed', generation: 2 })]
    assert.equal(judge(said, 'abcd'), undefined)
    assert.equal(judge([...said, failed('cd', { why: 'silent', generation: 3 })], 'abcd')?.id, 'd')
    assert.equal(
      judge(
        said.map((failure) => ({ ...failure, proven: true })),
        'abcd',
      )?.id,
      'd',
    )
  })

  test('threat 37: accusers of one network are one voice, unless the accused is of that network, too', () => {
    const said = [
      failed('ad', { why: 'refused' }),
      failed('bd', { why: 'refused', generation: 2 }),
      failed('cd', { why: 'refused', generation: 3 }),
    ]
    const judgeIn = (networks: Readonly<Record<string, string>>) =>
      badMember(said, ids('abcd'), { now: 0, halfLifeMs: HALF_LIFE, networkOf: (id) => networks[id] })
    assert.equal(judgeIn({ a: 'x', b: 'x', c: 'x', d: 'y' }), undefined)
    assert.equal(judgeIn({ a: 'x', b: 'y', c: 'z', d: 'y' })?.id, 'd')
    assert.equal(judgeIn({ a: 'x', b: 'x', c: 'x', d: 'x' })?.id, 'd')
  })

  test('is not bad for accusing: a member that accuses several others is itself in all these pairs', () => {
    const failures = [
      failed('ax', { why: 'closed' }),
      failed('bx', { why: 'closed', generation: 2 }),
      failed('cx', { why: 'closed', generation: 3 }),
    ]
    assert.equal(judge(failures, 'abcx')?.id, 'x')
  })
})

const is = (pairs: readonly string[], a: string, b: string): boolean => pairs.includes(a + b) || pairs.includes(b + a)

function givenVerdict(dead: readonly string[], bad: readonly string[], a: string, b: string): 'dead' | 'bad' | 'good' {
  if (is(dead, a, b)) return 'dead'
  return is(bad, a, b) ? 'bad' : 'good'
}

describe('the order of a ring', () => {
  const order = (members: string, bad: readonly string[], dead: readonly string[] = []) => {
    const { members: ring, relayed, evicted } = orderRing(ids(members), (a, b) => givenVerdict(dead, bad, a, b))
    return { ring: ring.join(''), relayed, evicted: evicted.map(({ id }) => id) }
  }

  test('stays as it is when all links are good', () => {
    assert.deepEqual(order('abcdefgh', []), { ring: 'abcdefgh', relayed: [], evicted: [] })
  })

  test('of two or three members cannot avoid anybody: bad links are relayed at once', () => {
    assert.deepEqual(order('ab', ['ab']), { ring: 'ab', relayed: [0, 1], evicted: [] })
    assert.deepEqual(order('abc', ['bc']), { ring: 'abc', relayed: [1], evicted: [] })
    assert.deepEqual(order('abc', ['ac', 'bc']), { ring: 'abc', relayed: [1, 2], evicted: [] })
  })

  test('of four or more keeps the two apart', () => {
    for (const members of ['abcd', 'abcde', 'abcdefghijkl'])
      for (const bad of ['ab', 'bc', `a${members.at(-1)}`]) {
        const { ring, relayed } = order(members, [bad])
        assert.deepEqual(relayed, [], `${members} without ${bad}: ${ring}`)
        assert.equal(
          (ring + ring[0]).includes(bad) || (ring + ring[0]).includes([...bad].reverse().join('')),
          false,
          ring,
        )
        assert.equal([...ring].sort().join(''), members)
      }
  })

  test('finds a way around many bad links', () => {
    const bad = ['ab', 'cd', 'ef', 'gh', 'ij', 'bc', 'fg']
    assert.deepEqual(order('abcdefghij', bad).relayed, [])
  })

  test('relays what no order avoids', () => {
    const { relayed, evicted } = order('abcd', ['ab', 'ac'])
    assert.deepEqual([relayed.length, evicted], [1, []])
  })

  test('leaves out one of two that not even the relay links: the one with more bad links, or the later one', () => {
    assert.deepEqual(order('abc', [], ['ab']), { ring: 'ac', relayed: [], evicted: ['b'] })
    assert.deepEqual(order('abc', ['ac'], ['ab']), { ring: 'bc', relayed: [], evicted: ['a'] })
    assert.deepEqual(order('ab', [], ['ab']), { ring: 'a', relayed: [], evicted: ['b'] })
    assert.deepEqual(order('abcd', [], ['ab']).evicted, [], 'an order avoids it')
  })
})

describe('a direct', () => {
  const links = (members: string, bad: readonly string[], dead: readonly string[] = []) => {
    const { members: left, relayed, evicted } = linkAll(ids(members), (a, b) => givenVerdict(dead, bad, a, b))
    return { left: left.join(''), relayed, evicted: evicted.map(({ id }) => id) }
  }

  test('keeps its order, and relays every bad link, of neighbours or not', () => {
    assert.deepEqual(links('abcd', []), { left: 'abcd', relayed: [], evicted: [] })
    assert.deepEqual(links('abcd', ['ca', 'bd']), {
      left: 'abcd',
      relayed: [
        [0, 2],
        [1, 3],
      ],
      evicted: [],
    })
  })

  test('leaves out one of two that not even the relay links, and names the ranks of the others', () => {
    assert.deepEqual(links('abcd', ['cd', 'ac'], ['ab']), { left: 'bcd', relayed: [[1, 2]], evicted: ['a'] })
  })
})

function ringOf(names: string, options: DeskOptions = {}): Desk {
  const desk = new Desk({ minVolunteers: names.length, ...options })
  desk.join(...names)
  desk.run(...names)
  return desk
}
const answerAll = (desk: Desk, names: string): void => {
  for (const name of names) desk.answer(name)
}
const relayedIn = (desk: Desk): [number, number][] | undefined => desk.sent('form')[0]?.relayed

test('a run of two whose link does not open goes on in ring mode, relayed', () => {
  const desk = new Desk({ minVolunteers: 2, mode: 'auto' })
  desk.join('a', 'b')
  answerAll(desk, 'ab')
  assert.deepEqual(relayedIn(desk), [])
  desk.accuse('a', 'b', 'unopened')
  answerAll(desk, 'ab')
  assert.deepEqual(relayedIn(desk), [[0, 1]])
  desk.confirm('a')
  desk.confirm('b')
  assert.deepEqual([desk.phase, desk.mode], ['ring', 'ring'])
})

test('a run whose link falls silent tries it once more before it is relayed', () => {
  const desk = ringOf('abc')
  desk.accuse('b', 'c', 'silent')
  answerAll(desk, 'abc')
  assert.deepEqual(relayedIn(desk), [])
  desk.accuse('b', 'c', 'unopened')
  answerAll(desk, 'abc')
  assert.deepEqual(relayedIn(desk), [[1, 2]])
})

test('a run learns of several links from one ABORT, and from those that come late', () => {
  const desk = ringOf('abcde')
  const { generation } = desk.state
  desk.accuse('b', 'a', 'unopened', { links: ['a', 'c'] })
  assert.deepEqual(desk.accuse('d', 'e', 'unopened', { generation }), [], 'a late ABORT opens no ballot')
  answerAll(desk, 'abcde')
  assert.deepEqual(
    desk.state.health.linkFailures.map(({ pair }) => pair.join('')),
    ['ba', 'bc', 'de'],
  )
  assert.deepEqual(relayedIn(desk), [])
  assert.notDeepEqual(desk.members, ids('abcde'))
})

test('a run ignores what a member reports about links of others', () => {
  const desk = ringOf('abcd')
  desk.accuse('a', 'c', 'unopened')
  answerAll(desk, 'abcd')
  assert.deepEqual([desk.members, desk.state.health.linkFailures], [ids('abcd'), []])
})

test('a run leaves out a member that not even the relay links, for a while that grows', () => {
  const desk = ringOf('abc', { timing: { stallMs: 1e9 } })
  for (const why of ['unopened', 'unopened'] as const) {
    desk.accuse('b', 'c', why)
    answerAll(desk, 'abc')
  }
  assert.deepEqual(desk.members, ids('ab'))
  const excluded = () => (desk.state.members.get(memberId('c'))?.excludedUntil ?? 0) - desk.now
  assert.equal(excluded(), 60_000)
  for (const name of 'ab') desk.confirm(name)
  desk.wait(60_001)
  desk.wait(3001)
  answerAll(desk, 'abc')
  assert.deepEqual(desk.members, ids('ab'), 'the relay failed ten minutes ago or less')
  assert.equal(excluded(), 120_000)
})

/** The coordinator relays the link of these two, and learns that this fails, too. */
function neverLink(desk: Desk, names: string, [by, peer]: readonly [string, string]): void {
  for (let i = 0; i < 2; i++) {
    desk.accuse(by, peer, 'unopened')
    answerAll(desk, names)
  }
}
const isOut = (desk: Desk, name: string): boolean =>
  (desk.state.members.get(memberId(name))?.excludedUntil ?? 0) > desk.now

test('a run takes back whom it left out for one that turns out to reach nobody', () => {
  const desk = ringOf('abc', { timing: { stallMs: 1e9 } })
  neverLink(desk, 'abc', ['c', 'a'])
  assert.deepEqual(desk.members, ids('ab'), 'of the two the one that came last is out')
  for (const name of 'ab') desk.confirm(name)
  neverLink(desk, 'abc', ['b', 'a'])
  assert.deepEqual([desk.members, isOut(desk, 'a')], [ids('bc'), true])
})

test('a run takes nobody back whose links with a third are dead as well', () => {
  const outAfter = (...peers: string[]): string => {
    const desk = ringOf('abcd', { exchange: { asked: 'direct', bytes: 0 }, timing: { stallMs: 1e9 } })
    for (let i = 0; i < 2; i++) {
      desk.accuse('d', peers[0] ?? '', 'unopened', { links: peers })
      answerAll(desk, 'abcd')
    }
    assert.deepEqual(desk.members, ids('abc'))
    for (const name of 'abc') desk.confirm(name)
    neverLink(desk, 'abcd', ['a', 'b'])
    assert.equal(desk.state.members.get(memberId('d'))?.exclusions, 1, 'it was not tried again in between')
    return [...'abcd'].filter((name) => isOut(desk, name)).join('')
  }
  assert.equal(outAfter('b'), 'b')
  assert.equal(outAfter('b', 'c'), 'bd')
})

test('a run forgets what it knew of a member that went away', () => {
  const desk = ringOf('abc')
  desk.accuse('b', 'c', 'unopened')
  desk.lose('c')
  desk.join('c')
  answerAll(desk, 'abc')
  assert.deepEqual([relayedIn(desk), desk.members], [[], ids('abc')])
})

test('a run goes back to the direct link when it opens again, between two steps', () => {
  const desk = ringOf('ab', { blocks: 60, timing: { stallMs: 1e9 } })
  desk.accuse('a', 'b', 'unopened')
  answerAll(desk, 'ab')
  for (const name of 'ab') desk.confirm(name)
  assert.deepEqual(desk.say('a', { type: 'link-restored', peer: memberId('b') }), [], 'too soon')
  desk.now += 10_000
  desk.say('a', { type: 'link-restored', peer: memberId('b') })
  assert.deepEqual(
    desk.sent('last-step').map(({ step }) => step),
    [2, 2],
  )
  desk.step(1)
  desk.step(2)
  assert.equal(desk.phase, 'freeze')
  desk.answer('a', [])
  desk.answer('b', [])
  assert.deepEqual(relayedIn(desk), [])
})

test('a run ignores a restored link that was not relayed', () => {
  const desk = ringOf('abc')
  assert.deepEqual(desk.say('a', { type: 'link-restored', peer: memberId('b') }), [])
})

test('threat 37: two liars that accuse an honest member again and again are out of the ring before it', () => {
  const desk = new Desk({ minVolunteers: 4, timing: { excludeMs: 600_000 } })
  const names = ['honest-1', 'honest-2', 'liar-1', 'liar-2']
  desk.join(...names)
  const outside = (): MemberId[] =>
    [...desk.state.members.values()].filter(({ excludedUntil }) => excludedUntil > desk.now).map(({ id }) => id)
  for (let i = 0; i < 12 && outside().length < 2; i++) {
    desk.run(...names)
    const liar = [`liar-${1 + (i % 2)}`, `liar-${2 - (i % 2)}`].find((name) => desk.members.includes(memberId(name)))
    if (liar !== undefined) desk.accuse(liar, 'honest-1', 'refused')
    assert.ok(!outside().includes(memberId('honest-1')), `honest-1 is out after ${i + 1} accusations`)
  }
  assert.deepEqual(outside().sort(), ['liar-1', 'liar-2'])
})

test('threat 37: one accusation keeps the two apart in the next ring, and no one is left out', () => {
  const desk = new Desk({ minVolunteers: 4 })
  desk.join('a', 'b', 'c', 'd')
  desk.run('a', 'b', 'c', 'd')
  const [first = '', second = ''] = desk.members
  desk.accuse(first, second, 'refused')
  desk.run('a', 'b', 'c', 'd')
  assert.equal(desk.members.length, 4)
  assert.equal(Math.abs(desk.members.indexOf(memberId(first)) - desk.members.indexOf(memberId(second))), 2)
})

test('the first ring relays the pairs of a member that takes relays only, whatever its place is', () => {
  const formOf = (...names: string[]) => {
    const desk = new Desk({ minVolunteers: names.length })
    for (const name of names) desk.join(name, { relaysOnly: name === 'b' })
    for (const name of names) desk.answer(name)
    return desk.sent('form')[0]?.relayed
  }
  assert.deepEqual(formOf('a', 'b', 'c'), [
    [0, 1],
    [1, 2],
  ])
  assert.equal(formOf('a', 'b', 'c', 'd')?.length, 2)
  assert.deepEqual(formOf('a', 'c', 'd'), [])
})

test('a member that takes relays only is no source of newcomers, which cannot link to it', () => {
  const desk = new Desk({ minVolunteers: 2, blocks: 300 })
  desk.join('a', { relaysOnly: true })
  desk.join('b')
  desk.run('a', 'b')
  for (const v of [1, 2, 3]) desk.step(v)
  desk.join('c')
  desk.wait(200)
  assert.deepEqual(
    desk.sent('copy-at').map(({ to }) => to),
    ['b'],
  )
})

describe('a source that is no neighbour (R7, R18)', () => {
  const relays = (members: string, sources: string, bad: readonly string[], linked: readonly string[] = []) =>
    linksToRelay({
      members: ids(members),
      sources: ids(sources),
      areNeighbours: (a, b) => linked.some((pair) => pair.includes(a) && pair.includes(b)),
      judge: (a, b) => (bad.some((pair) => pair.includes(a) && pair.includes(b)) ? 'bad' : 'good'),
    }).map(({ member, source }) => `${member}${source}`)

  test('is reached through the coordinator where the direct link is bad, and only by members that fetch', () => {
    assert.deepEqual(relays('ab', 's', ['as']), ['as'])
    assert.deepEqual(relays('ab', 's', []), [])
    assert.deepEqual(relays('ab', 'bs', ['as', 'bs', 'ab'], ['ab']), ['as'])
  })

  test('has no more relayed links than the relay admits of one member', () => {
    assert.deepEqual(relays('abc', 's', ['as', 'bs', 'cs']), ['as', 'bs'])
    assert.deepEqual(relays('a', 'rst', ['ar', 'as', 'at']), ['ar', 'as'])
  })

  test('is told of all members where it is in no ring with them, and inside one of those that are relayed', () => {
    const [a, b, s] = ids('abs') as [MemberId, MemberId, MemberId]
    const link = { member: a, source: s }
    assert.deepEqual(meetings({ members: [a, b], sources: [s] }, [link]), [
      { source: s, members: [a, b], relayed: [a] },
    ])
    assert.deepEqual(meetings({ members: [a, b, s], sources: [s] }, [link]), [
      { source: s, members: [a], relayed: [a] },
    ])
    assert.deepEqual(meetings({ members: [a, s], sources: [s] }, []), [])
  })
})
