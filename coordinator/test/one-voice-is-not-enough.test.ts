// Liars against a real coordinator over real sockets. One member's word changes no model, ends no run and puts out no
// honest member. The liar is named, the honest members stay, the run goes on.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { encodeVersionState, readParameters, type ParameterLayout } from '@starling-grid/model'
import { digest, pathTo, ROUTES, type ToCoordinator } from '@starling-grid/protocol'
import type { FakeOptions, FakeVolunteer } from './fake-volunteer.ts'
import {
  OWNER,
  QUICK,
  recordsOf,
  runOf,
  smallJob,
  startCoordinator,
  submit,
  until,
  volunteer,
  watch,
} from './fixture.ts'

const BLOCKS = 36
const LIE = digest(new TextEncoder().encode('a lie'))

/** What an honest member meets on a busy machine: a lease ran out, or another member had the block sooner. */
const HONEST_CODES = ['lease-stale', 'duplicate']

/** Other refusals that a member was sent, and whether its socket is open. */
function standingOf(fake: FakeVolunteer): { readonly codes: readonly string[]; readonly isConnected: boolean } {
  const codes = fake.messages.flatMap((message) => (message.type === 'refused' ? [message.code] : []))
  return {
    codes: [...new Set(codes)].filter((code) => !HONEST_CODES.includes(code)),
    isConnected: fake.socket.readyState === fake.socket.OPEN,
  }
}

const HONEST = { codes: [], isConnected: true }

async function assertTrained(url: string, id: string, epochs: number): Promise<void> {
  const blocks = (await recordsOf(url, id)).flatMap((record) => record.blocks)
  assert.deepEqual([blocks.length, new Set(blocks).size], [epochs * BLOCKS, epochs * BLOCKS])
  const run = await runOf(url, id)
  assert.deepEqual([run.phase, run.checkpoint?.v], ['finished', run.version.v])
}

async function exported(url: string, id: string, layout: ParameterLayout): Promise<Float32Array> {
  const answer = await fetch(`${url}${pathTo(ROUTES.export, { id })}`, { headers: OWNER })
  assert.equal(answer.status, 200)
  return readParameters(new Uint8Array(await answer.arrayBuffer()), layout)
}

function lying(type: ToCoordinator['type'], lie: object): (message: ToCoordinator) => ToCoordinator {
  return (message) => (message.type === type ? ({ ...message, ...lie } as ToCoordinator) : message)
}

test('threat 43: a member with false digests neither keeps the run from its end nor harms the uploader', async () => {
  const { url } = await startCoordinator({ timing: { ...QUICK, checkpointSteps: 4 } })
  const { id } = await submit(url, smallJob({ volunteers: { min: 3 } }))
  const honest = [volunteer(url), volunteer(url)]
  const liar = volunteer(url, { name: 'liar', change: lying('version-digest', { digest: LIE }) })
  await Promise.all(honest.map((fake) => fake.heard('finished')))
  await assertTrained(url, id, 2)
  assert.deepEqual(honest.map(standingOf), [HONEST, HONEST])
  const { codes } = standingOf(liar)
  assert.deepEqual(codes, ['digest-mismatch'])
})

test('threat 37: any number of members that confirm a false state do not expel an honest one', async () => {
  for (const liars of [1, 2]) {
    const { url } = await startCoordinator({ timing: { ...QUICK, excludeMs: 1000 } })
    const { id } = await submit(url, smallJob({ volunteers: { min: 1 + liars }, stop: { epochs: 1 } }))
    const change = lying('confirm', { digest: LIE })
    for (let i = 0; i < liars; i++) volunteer(url, { name: `liar ${i}`, change })
    const honest = volunteer(url, { name: 'honest' })
    await honest.heard('finished')
    await assertTrained(url, id, 1)
    assert.ok(standingOf(honest).isConnected)
    const refusals = honest.messages.filter((message) => message.type === 'refused')
    assert.ok(refusals.every(({ fatal }) => !fatal))
    const lost = (await runOf(url, id)).departed.filter(({ expected }) => !expected)
    assert.deepEqual(lost, [])
  }
})

test('threat 35: a member with other bytes in two steps is named, and its bytes are in no committed step', async () => {
  const { url } = await startCoordinator()
  const { id } = await submit(url, smallJob({ volunteers: { min: 3 } }))
  // The liar is quicker: it says both steps before any other says the first.
  const honest = [volunteer(url, { stepMs: 30 }), volunteer(url, { stepMs: 60 })]
  const liar = volunteer(url, {
    name: 'liar',
    change: (message) =>
      message.type === 'held' && (message.record.v === 5 || message.record.v === 6)
        ? { ...message, record: { ...message.record, gradDigest: LIE } }
        : message,
  })
  const refusal = await liar.heard('refused')
  assert.match(refusal.message, /step 5/)
  assert.equal(refusal.code, 'digest-mismatch')
  await Promise.all(honest.map((fake) => fake.heard('finished')))
  await assertTrained(url, id, 2)
  assert.deepEqual(honest.map(standingOf), [HONEST, HONEST])
  assert.ok((await recordsOf(url, id)).every(({ gradDigest }) => gradDigest !== LIE))
})

const FALSE = 1234.5
/** Up to here liars say what is true. */
const TRUE_UNTIL = 2

/** What liars that work together say that a version holds: all the same. */
function falseState(state: Uint8Array, liar: FakeVolunteer): Uint8Array {
  const held = liar.held ?? assert.fail()
  if (held.version.v <= TRUE_UNTIL) return state
  return encodeVersionState({ ...liar.form, ...held, parameters: held.parameters.map(() => FALSE) })
}

const FALSE_STATE: FakeOptions = {
  forge: falseState,
  change: (message, liar) =>
    message.type === 'version-digest' || message.type === 'confirm'
      ? { ...message, digest: digest(falseState(liar.stateBytes(), liar)) }
      : message,
}

/** The events that a page shows which opens now. */
async function eventsOf(url: string): Promise<string> {
  const { messages, stop } = watch(url)
  for await (const message of messages)
    if (message.type === 'snapshot') {
      stop()
      return message.events.map(({ text }) => text).join('\n')
    }
  throw new Error('the stream ended before its first message')
}

/** Two liars that work together train with an honest member to the end; what the run said, and its model. */
async function trainedWithTwoLiars({ sums }: { readonly sums?: false } = {}) {
  const { url } = await startCoordinator({ timing: { ...QUICK, checkpointSteps: 4, excludeMs: 1000 } })
  const { id } = await submit(url, smallJob({ volunteers: { min: 3 }, evaluate: { everyEpochs: 2 } }))
  const refusing = sums === undefined ? {} : { sums }
  const honest = volunteer(url, { name: 'honest', ...refusing })
  const liars = ['liar 1', 'liar 2'].map((name) => volunteer(url, { name, ...FALSE_STATE, ...refusing }))
  await honest.heard('finished')
  await assertTrained(url, id, 2)
  const parameters = await exported(url, id, honest.form.layout)
  return { honest, liars, parameters, events: await eventsOf(url) }
}

test('threat 43: two liars of three do not pass a false state: it is derived, and both are named', async () => {
  const { honest, liars, parameters, events } = await trainedWithTwoLiars()
  assert.match(events, /the state of version ([3-9]|\d\d) was derived/)
  assert.doesNotMatch(events, /votes decide/)
  assert.deepEqual(standingOf(honest), HONEST)
  for (const liar of liars) assert.deepEqual(standingOf(liar).codes, ['digest-mismatch'])
  assert.deepEqual(parameters, honest.held?.parameters)
})

test('where no member serves the sums, the page says that votes decide', async () => {
  const { events } = await trainedWithTwoLiars({ sums: false })
  assert.match(
    events,
    /the state of version \d+ is not derived, and votes decide: no member serves the sums since version \d/,
  )
})

/** A liar gives up the ring when all hold the same version, and liars answer ballots before the others. */
async function forgedHandover(lies: FakeOptions, honestMembers: number) {
  const { url, runs } = await startCoordinator({ timing: { ...QUICK, abortsBeforeFallback: 1, quietMs: 1e9 } })
  const { id } = await submit(url, smallJob({ mode: 'auto', volunteers: { min: 3 }, stop: { epochs: 1 } }))
  const run = runs.find(id) ?? assert.fail()
  /** The coordinator waits for a liar's answer. */
  const isAwaited = (generation: number): boolean => {
    const { phase } = run.state
    if (phase.type !== 'freeze' || run.state.generation !== generation) return false
    return liars.some((one) => phase.expected.has(one.id) && !phase.claims.has(one.id))
  }
  const afterLiars = async (message: Extract<ToCoordinator, { type: 'state' }>, fake: FakeVolunteer) => {
    while (isAwaited(message.generation)) await new Promise((resolve) => setTimeout(resolve, 1))
    fake.say(message)
  }
  const late = (message: ToCoordinator, fake: FakeVolunteer): ToCoordinator | undefined =>
    message.type === 'state' ? void afterLiars(message, fake) : message
  // all of them hold the version that is handed over
  let open = (): void => undefined
  const opened = new Promise<void>((resolve) => {
    open = resolve
  })
  const beforeStep = (step: number): Promise<void> | undefined => (step > TRUE_UNTIL + 1 ? opened : undefined)
  const honest = Array.from({ length: honestMembers }, () => volunteer(url, { change: late, beforeStep }))
  const liars = Array.from({ length: 3 - honestMembers }, () =>
    volunteer(url, { name: 'liar', works: false, beforeStep, ...lies }),
  )
  const [liar = assert.fail()] = liars
  const { fence, generation } = await liar.heard('start')
  await until(url, 'some steps', ({ version }) => version.v > TRUE_UNTIL)
  const about = { step: 3, blamed: null, links: [], code: 'link-lost', message: 'x' } satisfies Partial<ToCoordinator>
  liar.say({ type: 'abort', fence, generation, why: 'own', ...about })
  await liar.heard('freeze', (freeze) => freeze.generation > generation)
  open()
  await Promise.all(honest.map((fake) => fake.heard('finished')))
  await assertTrained(url, id, 1)
  assert.deepEqual(
    honest.map(standingOf),
    honest.map(() => HONEST),
  )
  assert.ok(
    liars.some(({ uploads }) => uploads.length > 0),
    'a liar was asked',
  )
  const parameters = await exported(url, id, honest[0]?.form.layout ?? assert.fail())
  assert.ok(parameters.every((value) => Math.abs(value) < 100))
}

test('threat 43: a state that one member made up does not reach the parameter server', () =>
  forgedHandover({ forge: falseState }, 2))

test('threat 43: a state that two of three holders made up does not reach the parameter server', () =>
  forgedHandover(FALSE_STATE, 1))

test('threat 40: a first push of enormous numbers does not reach the model', async () => {
  const { url } = await startCoordinator()
  const { id } = await submit(url, smallJob({ mode: 'async', stop: { epochs: 1 } }))
  const [idle, stranger] = [volunteer(url, { works: false }), volunteer(url, { works: false })]
  const grant = await stranger.heard('grant')
  const body = new Float32Array(stranger.form.layout.total).fill(1e37)
  const { verdict, code } = await stranger.push(grant, { body })
  assert.ok(verdict === 'gradient-unproven' || code === 'gradient-unproven', `${verdict} ${code}`)
  stranger.close()
  idle.close()
  const honest = [volunteer(url), volunteer(url)]
  await Promise.all(honest.map((fake) => fake.heard('finished')))
  await assertTrained(url, id, 1)
  const parameters = await exported(url, id, honest[0]?.form.layout ?? assert.fail())
  assert.ok(parameters.every((value) => Math.abs(value) < 100))
})

test('a member whose pushes are refused sets no block aside, and the others train all of them', async () => {
  const { url } = await startCoordinator({ timing: { ...QUICK, excludeMs: 50 } })
  const { id } = await submit(url, smallJob({ mode: 'async', stop: { epochs: 1 }, volunteers: { min: 3 } }))
  const honest = [volunteer(url), volunteer(url)]
  const stranger = volunteer(url, { name: 'stranger', works: false })
  const poison = async (): Promise<void> => {
    const answered = new Set<number>()
    await stranger.heard('grant')
    while (stranger.socket.readyState === stranger.socket.OPEN) {
      const grant = stranger.messages.find(
        (message) => message.type === 'grant' && !answered.has(message.leases[0]?.leaseEpoch ?? 0),
      )
      if (grant?.type !== 'grant') {
        await stranger.next('a grant')
        continue
      }
      answered.add(grant.leases[0]?.leaseEpoch ?? 0)
      await stranger.push(grant, { body: new Float32Array(stranger.form.layout.total).fill(Number.NaN) })
      stranger.say({ type: 'lease-request', modeEpoch: grant.modeEpoch })
    }
  }
  void poison().catch(() => undefined)
  await Promise.all(honest.map((fake) => fake.heard('finished')))
  await assertTrained(url, id, 1)
  assert.equal((await runOf(url, id)).queue.quarantined, 0)
  assert.deepEqual(honest.map(standingOf), [HONEST, HONEST])
  const { refusals } = await runOf(url, id)
  assert.ok((refusals['gradient-not-finite'] ?? 0) > 0, JSON.stringify([refusals, standingOf(stranger)]))
})
