// WebRTC in this process, behind the browser's names: what a stranger describes, and what a listener throws.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GridError } from '@starling-grid/protocol'
import { GuardedConnection } from '../src/webrtc.ts'

interface Description {
  readonly type: string
  readonly sdp?: string
}

interface DataChannel {
  onopen: () => void
  onmessage: (event: { readonly data: unknown }) => void
  send(text: string): void
}

/** What is used of a page's class, whose type is known in pages alone. */
interface Connection {
  readonly localDescription: Description | null
  onicecandidate: (event: { readonly candidate: object | null }) => void
  ondatachannel: (event: { readonly channel: DataChannel }) => void
  createDataChannel(label: string): DataChannel
  createOffer(): Promise<Description>
  createAnswer(): Promise<Description>
  setLocalDescription(description: Description): Promise<void>
  setRemoteDescription(description: Description): Promise<void>
  addIceCandidate(candidate: object | null): Promise<void>
  close(): void
}

interface Pair {
  readonly near: Connection
  readonly far: Connection
  close(): void
}

function openPair(): Pair {
  const [near, far] = [open(), open()]
  near.onicecandidate = ({ candidate }) => void far.addIceCandidate(candidate)
  far.onicecandidate = ({ candidate }) => void near.addIceCandidate(candidate)
  return { near, far, close: () => [near, far].forEach((one) => one.close()) }
}

function open(): Connection {
  return new GuardedConnection({ local: true }) as unknown as Connection
}

async function introduce({ near, far }: Pair): Promise<void> {
  await near.setLocalDescription(await near.createOffer())
  await far.setRemoteDescription(near.localDescription ?? assert.fail('no offer'))
  await far.setLocalDescription(await far.createAnswer())
  await near.setRemoteDescription(far.localDescription ?? assert.fail('no answer'))
}

test('threat 30: a description of sound or pictures is refused before their codecs see it', async () => {
  const pair = openPair()
  pair.near.createDataChannel('data')
  const { sdp = '' } = await pair.near.createOffer()
  for (const media of ['audio 9 UDP/TLS/RTP/SAVPF 111', 'video 9 UDP/TLS/RTP/SAVPF 96', 'applications 9 x'])
    await assert.rejects(
      pair.far.setRemoteDescription({ type: 'offer', sdp: `${sdp}m=${media}\r\na=mid:1\r\n` }),
      (error) => error instanceof GridError && error.message.includes(`data alone, got "m=${media}"`),
    )
  await pair.far.setRemoteDescription({ type: 'offer', sdp })
  pair.close()
})

test('a listener that throws costs a warning, and the channel goes on', async () => {
  const pair = openPair()
  const warned = new Promise<Error>((resolve) => void process.once('warning', resolve))
  const channel = pair.near.createDataChannel('data')
  const came: unknown[] = []
  const all = new Promise<void>((resolve) => {
    pair.far.ondatachannel = ({ channel: there }) => {
      there.onmessage = ({ data }) => {
        came.push(data)
        if (came.length === 1) throw new Error('of a listener')
        resolve()
      }
    }
  })
  channel.onopen = () => ['first', 'second'].forEach((text) => channel.send(text))
  await introduce(pair)
  await all
  assert.deepEqual(came, ['first', 'second'])
  assert.equal((await warned).message, 'of a listener')
  pair.close()
})
