// Threat 31 on links over TCP: a coordinator names certificates, and the members themselves prove who they are.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { test } from 'node:test'
import { connect as connectTls, createServer as createTls } from 'node:tls'
import { type LinkIdentity, type MemberId, newIncarnation, type Sha256 } from '@starling-grid/protocol'
import type { ChannelLink } from '@starling-grid/volunteer'
import { type OwnCertificate, ownCertificate } from '../src/own-certificate.ts'
import { closers, dialOptions, type Hall, linked, openHall, until } from './tcp-hall.ts'

interface Person {
  readonly id: MemberId
  readonly identity: LinkIdentity
}

async function newPerson(): Promise<Person> {
  const keys = (await crypto.subtle.generateKey('Ed25519', true, ['sign', 'verify'])) as CryptoKeyPair
  const raw = new Uint8Array(await crypto.subtle.exportKey('raw', keys.publicKey))
  const { incarnation, ...known } = newIncarnation(raw)
  const signer: LinkIdentity['signer'] = {
    sign: async (bytes) => new Uint8Array(await crypto.subtle.sign('Ed25519', keys.privateKey, bytes)),
    verify: async (publicKey, bytes, signature) =>
      crypto.subtle.verify(
        'Ed25519',
        await crypto.subtle.importKey('raw', publicKey, 'Ed25519', false, ['verify']),
        signature,
        bytes,
      ),
  }
  return { id: incarnation, identity: { ...known, signer } }
}

test('threat 31: two members with unchanged fingerprints prove their keys and have a link', async () => {
  const [a, b] = [await newPerson(), await newPerson()]
  const [one, other] = await linked({ self: a.id, identity: a.identity }, { self: b.id, identity: b.identity })
  assert.deepEqual([one.peer, other.peer], [b.id, a.id])
})

test('threat 31: a coordinator that names its own certificates stands between two members in vain', async () => {
  const [a, b] = [await newPerson(), await newPerson()]
  const [from, to, middle] = [await openHall(), await openHall({ self: b.id, identity: b.identity }), await openHall()]
  // It passes on every byte, unread: each of the two sees the certificate of the middle.
  middle.guests.set(from.door.fingerprint, a.id)
  to.guests.set(middle.door.fingerprint, a.id)
  const onward = ownCertificate()
  to.guests.set(onward.fingerprint, a.id)
  const tls = await relayBetween(to, onward)
  const dial = from.keeper.dial(
    { member: b.id, door: { ...to.door, port: tls.port, fingerprint: tls.fingerprint } },
    dialOptions({ self: a.id, identity: a.identity }),
  )
  await assert.rejects(dial, { code: 'link-lost' })
  await assert.rejects(await arrivalFailure(to), /fingerprints of this link/)
})

/** TLS towards both, with certificates of its own. */
async function relayBetween(
  { door }: Hall,
  onward: OwnCertificate,
): Promise<{ readonly port: number; readonly fingerprint: Sha256 }> {
  const own = ownCertificate()
  const server = createTls(
    { cert: own.cert, key: own.key, requestCert: true, rejectUnauthorized: false, ALPNProtocols: ['starling-link/1'] },
    (socket) => {
      const out = connectTls({
        host: '127.0.0.1',
        port: door.port,
        cert: onward.cert,
        key: onward.key,
        rejectUnauthorized: false,
        ALPNProtocols: ['starling-link/1'],
      })
      for (const end of [socket, out]) end.on('error', () => undefined)
      socket.pipe(out).pipe(socket)
      closers.push(() => out.destroy())
    },
  )
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  closers.push(() => server.close())
  return { port: (server.address() as AddressInfo).port, fingerprint: own.fingerprint }
}

async function arrivalFailure({ arrivals }: Hall): Promise<() => Promise<ChannelLink>> {
  await until(() => arrivals.length > 0, 'an arrival')
  return () => arrivals[0] ?? assert.fail()
}

const wrongProofs: readonly [what: string, of: (a: Person, other: Person) => LinkIdentity | undefined][] = [
  ['the key of another member', (_, { identity }) => identity],
  ['no key', () => undefined],
]
for (const [what, of] of wrongProofs)
  test(`threat 31: a guest that shows ${what} gets no link`, async () => {
    const [a, b, c] = [await newPerson(), await newPerson(), await newPerson()]
    const [from, to] = [await openHall(), await openHall({ self: b.id, identity: b.identity })]
    to.guests.set(from.door.fingerprint, a.id)
    const dial = from.keeper.dial(
      { member: b.id, door: to.door },
      dialOptions({ self: a.id, identity: of(a, c), milliseconds: 1000 }),
    )
    await assert.rejects(dial, { code: 'link-lost' })
    await assert.rejects(await arrivalFailure(to), /identity-unproven|expected the key|expected a greeting that proves/)
  })
