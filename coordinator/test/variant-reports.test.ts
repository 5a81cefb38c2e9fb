// Kernel variants that volunteers report: who is a voice of its own, what is handed out, what is kept, and what the
// routes refuse.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  digest,
  MAX_VARIANT_BYTES,
  memberId,
  MOST_VOTED_SHAPES,
  parse,
  pathTo,
  ROUTES,
  type VariantVotes,
  VariantVotesSchema,
} from '@starling-grid/protocol'
import { variantNames } from '@starling-grid/shaders'
import { voiceOf } from '../src/net/network.ts'
import { VariantReports, votesOf } from '../src/variant-reports.ts'
import type { FakeVolunteer } from './fake-volunteer.ts'
import { OWNER, startCoordinator, volunteer } from './fixture.ts'

const [FIRST = '', SECOND = '', THIRD = ''] = variantNames()
const ADAPTER = digest(new TextEncoder().encode('an adapter'))
const classNamed = (i: number) => digest(new TextEncoder().encode(`adapter ${i}`))
const shapes = (variant: string, shape = 'a shape') => [{ shape, variants: [variant], ms: 1 }]
const reporter = (i: number, voice = `voice ${i}`) => ({ member: memberId(i.toString(16).padStart(32, '0')), voice })

test('the variant that most reports name is handed out, with how many name it', () => {
  assert.deepEqual(votesOf([SECOND, FIRST, SECOND, THIRD].map((variant) => ({ shapes: shapes(variant) }))), {
    volunteers: 4,
    shapes: [{ shape: 'a shape', variant: SECOND, votes: 2 }],
  })
  assert.deepEqual(votesOf([]), { volunteers: 0, shapes: [] })
})

test('of as many votes the variant that was named first stays', () => {
  const [winner] = votesOf([FIRST, SECOND].map((variant) => ({ shapes: shapes(variant) }))).shapes
  assert.equal(winner?.variant, FIRST)
})

test('reports that name several variants agree on the one that both name', () => {
  const both = [
    { shapes: [{ shape: 'a shape', variants: [FIRST, SECOND], ms: 1 }] },
    { shapes: [{ shape: 'a shape', variants: [THIRD, SECOND, SECOND], ms: 1 }] },
  ]
  assert.deepEqual(votesOf(both).shapes, [{ shape: 'a shape', variant: SECOND, votes: 2 }])
})

test('a report that names a shape twice has one vote, and shapes with most votes come first in a full answer', () => {
  const twice = { shapes: [...shapes(FIRST), ...shapes(SECOND)] }
  assert.deepEqual(votesOf([twice]).shapes, [{ shape: 'a shape', variant: SECOND, votes: 1 }])
  const flood = Array.from({ length: MOST_VOTED_SHAPES }, (_, i) => shapes(FIRST, `nonsense ${i}`)).flat()
  const honest = { shapes: shapes(SECOND) }
  const votes = votesOf([{ shapes: flood }, honest, honest])
  assert.equal(votes.shapes.length, MOST_VOTED_SHAPES)
  assert.deepEqual(votes.shapes[0], { shape: 'a shape', variant: SECOND, votes: 2 })
})

test('threat 44: one voice has one report of a class, however many members it is and however often it reports', () => {
  const reports = new VariantReports()
  for (let i = 0; i < 50; i++) reports.take(ADAPTER, reporter(i, 'one address'), { shapes: shapes(FIRST) })
  assert.equal(reports.votes(ADAPTER).shapes[0]?.votes, 1)
  reports.take(ADAPTER, reporter(1, 'another address'), { shapes: shapes(SECOND) })
  reports.take(ADAPTER, reporter(1, 'a third address'), { shapes: shapes(SECOND) })
  assert.equal(reports.votes(ADAPTER).volunteers, 2, 'a member that moves takes its report along')
})

test('the newest reports of a class are kept, and all of them are forgotten in their order', () => {
  const reports = new VariantReports({ reportsOfClass: 3 })
  for (let i = 0; i < 10; i++) reports.take(ADAPTER, reporter(i), { shapes: shapes(i < 7 ? FIRST : SECOND) })
  assert.deepEqual(reports.votes(ADAPTER), {
    volunteers: 3,
    shapes: [{ shape: 'a shape', variant: SECOND, votes: 3 }],
  })
})

test('threat 25: a thousand classes of one voice push no other voice out, and memory is bounded', () => {
  const reports = new VariantReports({ classesOfVoice: 8, classes: 20 })
  reports.take(ADAPTER, reporter(1), { shapes: shapes(FIRST) })
  for (let i = 0; i < 1000; i++) reports.take(classNamed(i), reporter(2, 'a flood'), { shapes: shapes(SECOND) })
  assert.equal(reports.votes(ADAPTER).volunteers, 1)
  assert.equal(reports.votes(classNamed(0)).volunteers, 0)
  assert.equal(reports.votes(classNamed(999)).volunteers, 1)
  for (let i = 0; i < 1000; i++) reports.take(classNamed(i), reporter(i), { shapes: shapes(SECOND) })
  const kept = Array.from({ length: 1000 }, (_, i) => reports.votes(classNamed(i)).volunteers)
  assert.ok(kept.filter((count) => count > 0).length <= 20)
})

test('what is asked for stays when room is made, and bytes are counted to the last one', () => {
  const one = 'a shape'.length + FIRST.length + 64
  const reports = new VariantReports({ bytes: 4 * one })
  reports.take(ADAPTER, reporter(0), { shapes: shapes(FIRST) })
  for (let i = 1; i < 30; i++) {
    reports.take(classNamed(i), reporter(i), { shapes: shapes(FIRST) })
    assert.equal(reports.votes(ADAPTER).volunteers, 1)
    assert.ok(reports.bytes <= 4 * one)
  }
  reports.take(classNamed(30), reporter(30), { shapes: Array.from({ length: 5 }, () => shapes(FIRST)).flat() })
  assert.equal(reports.bytes, 0, 'a report beyond all room leaves nothing')
})

test('a voice is a public network, or an address of a local one', () => {
  assert.equal(voiceOf('8.8.4.4'), voiceOf('::ffff:8.8.4.200'))
  assert.notEqual(voiceOf('8.8.4.4'), voiceOf('8.8.5.4'))
  assert.notEqual(voiceOf('192.168.1.4'), voiceOf('192.168.1.5'))
  assert.equal(voiceOf('127.0.0.1'), voiceOf('::ffff:127.0.0.1'))
})

// ---- the routes ----

const PATH = pathTo(ROUTES.variants, { adapterClass: ADAPTER })

async function greeted(url: string): Promise<FakeVolunteer> {
  const fake = volunteer(url)
  await fake.heard('welcome')
  return fake
}

function told(fake: FakeVolunteer, body: unknown, { path = PATH, from = '8.8.4.4' } = {}): Promise<Response> {
  const headers = { 'content-type': 'application/octet-stream', 'x-forwarded-for': from }
  return fake.request(path, { method: 'PUT', headers, body: typeof body === 'string' ? body : JSON.stringify(body) })
}

async function votesOn(fake: FakeVolunteer, path = PATH): Promise<VariantVotes> {
  const answer = await fake.request(path)
  assert.equal(answer.status, 200)
  return parse(VariantVotesSchema, await answer.json(), 'the votes')
}

test('reports of two networks confirm a variant; those of one do not, whatever keys it has', async () => {
  const { url } = await startCoordinator({ trustedProxies: ['127.0.0.1', '::1'] })
  const [one, other, asking] = [await greeted(url), await greeted(url), await greeted(url)]
  assert.deepEqual(await votesOn(asking), { volunteers: 0, shapes: [] })
  assert.equal((await told(one, { shapes: shapes(FIRST) })).status, 204)
  assert.equal((await told(other, { shapes: shapes(FIRST) }, { from: '8.8.4.5' })).status, 204)
  assert.equal((await votesOn(asking)).shapes[0]?.votes, 1)
  await told(one, { shapes: shapes(FIRST) }, { from: '9.9.9.9' })
  assert.deepEqual(await votesOn(asking), {
    volunteers: 2,
    shapes: [{ shape: 'a shape', variant: FIRST, votes: 2 }],
  })
  assert.deepEqual(await votesOn(asking, pathTo(ROUTES.variants, { adapterClass: classNamed(1) })), {
    volunteers: 0,
    shapes: [],
  })
})

const many = Array.from({ length: MOST_VOTED_SHAPES + 1 }, (_, i) => shapes(FIRST, `shape ${i}`)).flat()
const HOSTILE: readonly (readonly [what: string, body: unknown, status: number])[] = [
  ['no JSON', '{', 400],
  ['a list', [], 400],
  ['no shapes', { shapes: [] }, 400],
  ['too many shapes', { shapes: many }, 400],
  ['an unknown variant', { shapes: shapes('shared 1024×1024') }, 400],
  ['a variant named like a property', { shapes: shapes('constructor') }, 400],
  ['a variant that is no text', { shapes: [{ shape: 'a shape', variants: [7], ms: 1 }] }, 400],
  ['no variants', { shapes: [{ shape: 'a shape', variants: [], ms: 1 }] }, 400],
  ['too many variants', { shapes: [{ shape: 'a shape', variants: [FIRST, FIRST, FIRST, FIRST], ms: 1 }] }, 400],
  ['NaN', `{"shapes":[{"shape":"a shape","variants":[${JSON.stringify(FIRST)}],"ms":NaN}]}`, 400],
  ['an infinite time', `{"shapes":[{"shape":"a shape","variants":[${JSON.stringify(FIRST)}],"ms":1e999}]}`, 400],
  ['no time at all', { shapes: [{ shape: 'a shape', variants: [FIRST], ms: 0 }] }, 400],
  ['a negative time', { shapes: [{ shape: 'a shape', variants: [FIRST], ms: -1 }] }, 400],
  ['a shape with a control character', { shapes: shapes(FIRST, 'a\nshape') }, 400],
  ['a shape without an end', { shapes: shapes(FIRST, 'x'.repeat(10_000)) }, 400],
  ['more than is asked for', { shapes: shapes(FIRST), code: 'fn main() {}' }, 400],
  ['a prototype', '{"shapes":[],"__proto__":{"shapes":[]}}', 400],
  ['a body beyond all bounds', 'x'.repeat(MAX_VARIANT_BYTES + 1), 413],
]

test('a report of any other form is refused with what was expected, and nothing of it is kept', async () => {
  const { url } = await startCoordinator()
  const fake = await greeted(url)
  for (const [what, body, status] of HOSTILE) {
    const answer = await told(fake, body)
    assert.equal(answer.status, status, what)
    const { code } = (await answer.json()) as { code: string }
    assert.match(code, /^message-(malformed|too-large)$/, what)
  }
  assert.deepEqual(await votesOn(fake), { volunteers: 0, shapes: [] })
})

test('only sessions ask and report, and of classes that are hashes', async () => {
  const { url } = await startCoordinator()
  const fake = await greeted(url)
  for (const headers of [{}, OWNER, { authorization: `Bearer ${'0'.repeat(64)}` }]) {
    assert.equal((await fetch(url + PATH, { headers })).status, 401)
    const put = { method: 'PUT', headers: { ...headers, 'content-type': 'application/octet-stream' }, body: '{' }
    assert.equal((await fetch(url + PATH, put)).status, 401, 'before its body is read')
  }
  for (const adapterClass of ['nvidia', '__proto__', 'A'.repeat(64), '0'.repeat(65)]) {
    const path = pathTo(ROUTES.variants, { adapterClass })
    assert.equal((await fake.request(path)).status, 400)
    assert.equal((await told(fake, { shapes: shapes(FIRST) }, { path })).status, 400)
  }
})
