// Identities. A public id is worth nothing without its key, also to a coordinator that lost its memory, and a lost
// WELCOME costs nothing.
import assert from 'node:assert/strict'
import { generateKeyPairSync } from 'node:crypto'
import { mkdtemp, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { CLOSE_REPLACED, type MessageTo, systemClock } from '@starling-grid/protocol'
import type { CoordinatorSocket } from '@starling-grid/volunteer'
import { type CoordinatorDoor, CoordinatorLink, Coordinators, type LinkHost } from '@starling-grid/volunteer/testing'
import { openSigner } from '../../client-node/src/signer.ts'
import { dialSocket } from '../../client-node/src/socket.ts'
import { type FakeVolunteer, newFakeSelf } from './fake-volunteer.ts'
import { runOf, smallJob, startCoordinator, submit, temporaryFolder, until, volunteer } from './fixture.ts'

async function refusalOf(stranger: FakeVolunteer): Promise<MessageTo<'refused'>> {
  const refused = await stranger.heard('refused')
  await stranger.closed
  return refused
}

/** Says hello as one member, with the key of another. */
function thiefOf(url: string, victim: FakeVolunteer): FakeVolunteer {
  const { publicKey, salt, incarnation } = victim.self
  return volunteer(url, { self: { ...newFakeSelf(), publicKey, salt, incarnation } })
}

test('threat 39: after a restart of the coordinator an id is free for its key alone', { timeout: 60_000 }, async () => {
  const dataDir = await temporaryFolder()
  const before = await startCoordinator({ dataDir })
  const { id } = await submit(before.url, smallJob({ stop: { epochs: 500 } }))
  const honest = [volunteer(before.url), volunteer(before.url)]
  await until(before.url, 'the ring', (run) => run.phase === 'ring' && run.version.v > 0)
  const shown = (await runOf(before.url, id)).members.map((member) => member.id)
  assert.deepEqual([...shown].sort(), honest.map((one) => one.id).sort(), 'their ids are public')
  await before.stop()
  const { url } = await startCoordinator({ dataDir })
  for (const victim of honest) {
    const thief = thiefOf(url, victim)
    assert.equal((await refusalOf(thief)).code, 'identity-unproven')
    const otherKey = volunteer(url, { self: { ...newFakeSelf(), incarnation: victim.id } })
    assert.equal((await refusalOf(otherKey)).code, 'identity-unproven')
  }
  for (const { self } of honest) await volunteer(url, { self }).heard('welcome')
})

test('a proof is good for one socket and one coordinator', async () => {
  const [here, elsewhere] = [await startCoordinator(), await startCoordinator()]
  const first = volunteer(here.url)
  await first.heard('welcome')
  const replayed = volunteer(here.url, { obedient: false, self: first.self })
  await replayed.heard('challenge')
  replayed.raw(first.said[0])
  assert.equal((await refusalOf(replayed)).code, 'identity-unproven', 'the hello of another socket')

  // A coordinator hands the challenge of another to a volunteer that dialled it, and passes the answer on.
  const between = volunteer(here.url, { obedient: false })
  await between.heard('challenge')
  between.hello({ coordinator: new URL(elsewhere.url).host })
  assert.match((await refusalOf(between)).message, /expected a hello to \S+, got one to/)
  const signedForOther = volunteer(here.url, { obedient: false })
  await signedForOther.heard('challenge')
  signedForOther.hello({ signature: signedForOther.signatureFor(new URL(elsewhere.url).host) })
  assert.equal((await refusalOf(signedForOther)).code, 'identity-unproven')
})

test('several members of one key are different members, and a reload is a new one', async () => {
  const { url } = await startCoordinator()
  const key = generateKeyPairSync('ed25519').privateKey
  const [one, two] = [volunteer(url, { self: newFakeSelf(key) }), volunteer(url, { self: newFakeSelf(key) })]
  await Promise.all([one.heard('welcome'), two.heard('welcome')])
  assert.notEqual(one.id, two.id)
  assert.equal(one.socket.readyState, one.socket.OPEN)
})

test('a new socket of a member replaces the old one; its older token is good until the newer is used', async () => {
  const { url } = await startCoordinator()
  await submit(url, smallJob())
  const first = volunteer(url, { obedient: false })
  first.hello()
  await first.heard('welcome')
  const status = async ({ request }: FakeVolunteer, of: FakeVolunteer): Promise<number> =>
    (await request.call(of, '/api/jobs/x/versions/y')).status
  assert.notEqual(await status(first, first), 401)
  const again = volunteer(url, { obedient: false, self: first.self })
  again.hello()
  await again.heard('welcome')
  assert.equal(await first.closed, CLOSE_REPLACED)
  assert.notEqual(again.session, first.session)
  assert.notEqual(await status(first, first), 401, 'the WELCOME may be lost')
  again.send({ type: 'heartbeat', samplesPerSecond: 1, activity: '', bytesSent: 0, bytesReceived: 0 })
  while ((await status(first, first)) !== 401);
  assert.notEqual(await status(again, again), 401)
})

/** The production socket; the connections of these numbers break when their WELCOME comes. */
function losing(url: string, lost: readonly number[], events: string[]): LinkHost & CoordinatorDoor {
  let dialled = 0
  return {
    client: 'node',
    clock: systemClock,
    coordinatorUrl: url,
    signer: () => signer,
    dialRelay: () => Promise.reject(new Error('no relay here')),
    dialCoordinator: async (path) => {
      const socket = await dialSocket(url.replace(/^http/, 'ws') + path)
      if (!lost.includes(++dialled)) return socket
      const listen = (onMessage: CoordinatorSocket['onMessage']): void => {
        socket.onMessage = (text) => {
          if (!text.includes('"type":"welcome"')) return onMessage?.(text)
          events.push('lost')
          socket.close()
        }
      }
      return {
        send: (text) => socket.send(text),
        close: () => socket.close(),
        get onMessage() {
          return socket.onMessage
        },
        set onMessage(handler) {
          listen(handler)
        },
        get onClose() {
          return socket.onClose
        },
        set onClose(handler) {
          socket.onClose = handler
        },
      }
    },
  }
}
const signer = mkdtemp(join(tmpdir(), 'starling-key-')).then((folder) => openSigner(join(folder, 'key.pem')))

test(
  'a WELCOME that is lost, at the first join and when coming back, costs a volunteer nothing',
  { timeout: 60_000 },
  async () => {
    const { url } = await startCoordinator()
    const events: string[] = []
    let welcomed: () => void = () => undefined
    const welcome = (): Promise<void> =>
      new Promise((resolve) => {
        welcomed = resolve
      })
    const ending = new AbortController()
    let next = welcome()
    const host = losing(url, [1, 3, 4], events)
    const link = new CoordinatorLink(
      host,
      { name: 'unlucky', coordinators: new Coordinators(host) },
      {
        onWelcome: () => {
          events.push('welcome')
          welcomed()
        },
        onMessage: () => undefined,
        onRefused: ({ code }) => events.push(code),
        onAway: () => undefined,
      },
    )
    const running = link.run(ending.signal)
    await next
    const { member } = link
    next = welcome()
    link.renew('its network flaps')
    await next
    assert.deepEqual(events, ['lost', 'welcome', 'lost', 'lost', 'welcome'])
    assert.equal(link.member, member, 'and it is still itself')
    ending.abort()
    await running
  },
)

test("a volunteer's key is a file of the user alone, made once by however many processes start", async () => {
  const file = join(await temporaryFolder(), 'new', 'key.pem')
  const keys = await Promise.all(Array.from({ length: 8 }, () => openSigner(file)))
  assert.equal(new Set(keys.map(({ publicKey }) => Buffer.from(publicKey).toString('hex'))).size, 1)
  assert.equal((await stat(file)).mode & 0o777, 0o600)
  assert.equal((await stat(join(file, '..'))).mode & 0o777, 0o700)
})
