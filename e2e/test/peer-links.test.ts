// Links between real processes and real tabs, introduced by the coordinator's signalling; and a ring of four processes.
import assert from 'node:assert/strict'
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import fastifyWebsocket from '@fastify/websocket'
import { launchBrowser } from '@starling-grid/client-node'
import { LINK_OPEN_MS, MAX_MESSAGE_BYTES, newMemberId, type ErrorCode, type MemberId } from '@starling-grid/protocol'
import type { PeerLink, SignallingAccess } from '@starling-grid/volunteer'
import { peerLinkCases, type CallFarEnd } from '@starling-grid/volunteer/testing'
import Fastify, { type FastifyInstance } from 'fastify'
import type { Browser } from 'playwright-core'
import { build } from 'vite'
import { registerRelay } from '../../coordinator/src/net/relay.ts'
import { registerSignalling, type Signalling } from '../../coordinator/src/net/signalling.ts'
import type {} from './link-peer-page.ts'
import type { RingResult } from './link-peer.ts'

interface Peer {
  readonly id: MemberId
  call(method: string, ...args: unknown[]): Promise<unknown>
  stop(): Promise<void>
}

const TYPESCRIPT = fileURLToPath(new URL('../../bin/typescript.mjs', import.meta.url))
const PATH = '/signalling'
/** Milliseconds after which one command of a peer has failed: far above the 27.6 s that ICE needs for a dead peer. */
const COMMAND_MS = 120_000
/** ms, of a machine that does much else: there three tries of ICE do not suffice */
const BUSY_LINK_OPEN_MS = 25_000
/** Links without heartbeats: on a busy machine an end that only reads is quiet for longer than members ever are. */
const RELAY_LIMITS = { messagesPerSecond: 10_000, pauseMs: 20, quietMs: COMMAND_MS }
const tokens = new Map<MemberId, string>()
const refusals: ErrorCode[] = []
/** processes of a test that failed would keep this one */
const children = new Set<ChildProcess>()
let app: FastifyInstance
let signalling: Signalling
let browser: Browser | undefined
let noBrowser = ''

before(async () => {
  app = Fastify()
  await app.register(fastifyWebsocket, { options: { maxPayload: MAX_MESSAGE_BYTES, perMessageDeflate: false } })
  signalling = registerSignalling(app, {
    path: PATH,
    authenticate: (id, token) => tokens.get(id) === token,
    shareNetwork: () => true,
    mayTalk: (src, dst) => tokens.has(src) && tokens.has(dst),
    onRefusal: (code) => refusals.push(code),
  })
  registerRelay(app, {
    authenticate: (id, token) => tokens.get(id) === token,
    mayRelay: (a, b) => tokens.has(a) && tokens.has(b),
    limits: RELAY_LIMITS,
    linkOpenMs: LINK_OPEN_MS,
    onRefusal: (code) => refusals.push(code),
    onForwarded: () => undefined,
  })
  for (const program of ['link-peer-page', 'link-peer-worker']) {
    const script = await bundle(`${program}.ts`)
    app.get(`/${program}.js`, (_, reply) => reply.type('text/javascript').send(script))
  }
  app.get('/', (_, reply) =>
    reply
      .type('text/html')
      .send('<!doctype html><title>link peer</title><script type="module" src="/link-peer-page.js"></script>'),
  )
  await app.listen({ port: 0, host: '127.0.0.1' })
  browser = await launchBrowser({ gpu: false }).catch((error: Error) => {
    noBrowser = error.message
    return undefined
  })
})

after(async () => {
  for (const child of children) child.kill('SIGKILL')
  await browser?.close()
  await app.close()
})

/** A program of this folder as one module. */
async function bundle(file: string): Promise<string> {
  const entry = fileURLToPath(new URL(file, import.meta.url))
  const output = await build({
    configFile: false,
    logLevel: 'error',
    build: {
      write: false,
      minify: false,
      lib: { entry, formats: ['es'] },
      rolldownOptions: { output: { codeSplitting: false } }, // one file is served
    },
  })
  const [built] = [output].flat()
  if (built === undefined || !('output' in built)) throw new Error('internal: vite built nothing')
  return built.output[0].code
}

function accessFor(self: MemberId): SignallingAccess {
  const token = `token-of_${self}`
  tokens.set(self, token)
  const { port } = app.server.address() as AddressInfo
  return { url: `http://127.0.0.1:${port}`, path: PATH, self, token, iceServers: [], linkOpenMs: BUSY_LINK_OPEN_MS }
}

/** A peer in a Node process. Its `stop` waits for the process to end by itself. */
async function startProcess(callFarEnd: CallFarEnd, env: Readonly<Record<string, string>> = {}): Promise<Peer> {
  const child = fork(TYPESCRIPT, [fileURLToPath(new URL('link-peer-process.ts', import.meta.url))], {
    env: { ...process.env, ...env },
  })
  children.add(child)
  child.once('exit', () => children.delete(child))
  const waiting = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>()
  let lastCall = 0
  child.on(
    'message',
    async (message: { type: string; id: number; method: string; args: unknown[]; value?: unknown; error?: string }) => {
      if (message.type === 'answer') {
        const call = waiting.get(message.id)
        waiting.delete(message.id)
        return message.error === undefined ? call?.resolve(message.value) : call?.reject(new Error(message.error))
      }
      const answer = await callFarEnd(message.method, message.args).then(
        (value) => ({ value }),
        (error: Error) => ({ error: error.message }),
      )
      child.send({ type: 'answer', id: message.id, ...answer })
    },
  )
  child.on('exit', (code, signal) => {
    for (const { reject } of waiting.values()) reject(new Error(`the process ended (${code ?? signal})`))
  })
  const call = (method: string, ...args: unknown[]): Promise<unknown> =>
    new Promise((resolve, reject) => {
      if (!child.connected) throw new Error(`the process ended before it was told to ${method}`)
      waiting.set(++lastCall, { resolve, reject })
      child.send({ type: 'call', id: lastCall, method, args })
    })
  const stop = async (): Promise<void> => {
    const exited = once(child, 'exit')
    await call('stop')
    const late = setTimeout(() => child.kill('SIGKILL'), 5000)
    assert.deepEqual(await exited, [0, null], 'the process ends by itself')
    clearTimeout(late)
  }
  return opened({ id: newMemberId(), call, stop })
}

const startWithoutTcp: Start = (callFarEnd) => startProcess(callFarEnd, { STARLING_TCP: 'off' })
const startTab = (callFarEnd: CallFarEnd): Promise<Peer> => openPage(callFarEnd, 'callPeer')
/** In a Worker of a tab, where training runs, over the bridge to the window. */
const startWorker = (callFarEnd: CallFarEnd): Promise<Peer> => openPage(callFarEnd, 'callWorkerPeer')

async function openPage(callFarEnd: CallFarEnd, entry: 'callPeer' | 'callWorkerPeer'): Promise<Peer> {
  if (browser === undefined) throw new Error(`internal: ${noBrowser}`)
  const page = await browser.newPage()
  await page.exposeFunction('callFarEnd', callFarEnd)
  await page.goto(`http://127.0.0.1:${(app.server.address() as AddressInfo).port}/`)
  const call = (method: string, ...args: unknown[]): Promise<unknown> =>
    page.evaluate(([name, command, values]) => window[name](command, values), [entry, method, args] as const)
  return opened({ id: newMemberId(), call, stop: () => page.close() })
}

async function opened(peer: Peer): Promise<Peer> {
  const call: Peer['call'] = (method, ...args) => withinLimit(peer.call(method, ...args), `${method} ${args[0]}`)
  await call('open', accessFor(peer.id))
  return { ...peer, call }
}

async function withinLimit<T>(answer: Promise<T>, what: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer to ${what} within ${COMMAND_MS} ms`)), COMMAND_MS)
  })
  return Promise.race([answer, late]).finally(() => clearTimeout(timer))
}

type Start = (callFarEnd: CallFarEnd) => Promise<Peer>
const pairs: readonly [what: string, near: Start, far: Start, carrier: PeerLink['carrier']][] = [
  ['a process to a process', startProcess, startProcess, 'tcp'],
  ['a process without TCP to a process', startWithoutTcp, startProcess, 'webrtc'],
  ['a process to a process without TCP', startProcess, startWithoutTcp, 'webrtc'],
  ['a process to a tab', startProcess, startTab, 'webrtc'],
  ['a tab to a process', startTab, startProcess, 'webrtc'],
  ['a tab to a tab', startTab, startTab, 'webrtc'],
  ['a Worker to a process', startWorker, startProcess, 'webrtc'],
]
const inTabs: readonly Start[] = [startTab, startWorker]

for (const [what, startNear, startFar, carrier] of pairs)
  test(`links from ${what} are ${carrier}`, async (t) => {
    if (browser === undefined && [startNear, startFar].some((start) => inTabs.includes(start))) return t.skip(noBrowser)
    const far = await startFar(() => Promise.reject(new Error('internal: the far end runs no cases')))
    const near = await startNear((command, args) => far.call('far', command, args))
    for (const { name } of peerLinkCases)
      await t.test(name, async () => {
        await far.call('accept', near.id)
        assert.equal(await near.call('runCase', name, far.id), carrier)
      })
    await Promise.all([near.stop(), far.stop()])
  })

const relayedPairs: readonly [what: string, near: Start, far: Start][] = [
  ['a process and a Worker', startProcess, startWorker],
  ['a Worker and a tab', startWorker, startTab],
]

for (const [what, startNear, startFar] of relayedPairs)
  test(`links through the coordinator between ${what}`, async (t) => {
    if (browser === undefined) return t.skip(noBrowser)
    const far = await startFar(() => Promise.reject(new Error('internal: the far end runs no cases')))
    const near = await startNear((command, args) => far.call('far', command, args))
    for (const { name } of peerLinkCases)
      await t.test(name, async () => {
        await far.call('acceptRelay', near.id)
        await near.call('runRelayCase', name, far.id)
      })
    await Promise.all([near.stop(), far.stop()])
  })

test('links outlive signalling, which comes back with a new token', async () => {
  const far = await startProcess(() => Promise.reject(new Error('internal: no cases here')))
  const near = await startProcess((command, args) => far.call('far', command, args))
  await far.call('accept', near.id)
  await near.call('dial', far.id)
  await far.call('far', 'read', [])
  const count = signalling.connected
  for (const peer of [near, far]) signalling.drop(peer.id)
  tokens.clear()
  await until(() => signalling.connected === count - 2)
  await near.call('sendNumbered', 100, 60_000)
  await far.call('far', 'waitForFrames', [100])
  for (const peer of [near, far]) await peer.call('reconnect', accessFor(peer.id))
  await until(() => signalling.connected === count)
  await far.call('accept', near.id)
  await near.call('dial', far.id)
  await near.call('sendNumbered', 1, 100)
  await far.call('far', 'read', [])
  await far.call('far', 'waitForFrames', [1])
  await Promise.all([near.stop(), far.stop()])
})

test('a dial to a member that is absent or does not listen ends with its signal', async () => {
  const near = await startProcess(() => Promise.reject(new Error('internal: no cases here')))
  const deaf = await startProcess(() => Promise.reject(new Error('internal: no cases here')))
  assert.equal(await near.call('dialInVain', newMemberId(), 500), 'TimeoutError')
  assert.equal(await near.call('dialInVain', deaf.id, 500), 'TimeoutError')
  await Promise.all([near.stop(), deaf.stop()])
})

test('four processes sum a million floats around a ring, bit-equal', async (t) => {
  const peers = await Promise.all(
    [0, 1, 2, 3].map(() => startProcess(() => Promise.reject(new Error('internal: no cases here')))),
  )
  t.after(() => Promise.all(peers.map((peer) => peer.stop())))
  const members = peers.map(({ id }) => id)
  const [floats, rounds] = [1_000_003, 5]
  await Promise.all(peers.map((peer, index) => peer.call('accept', members.at(index - 1))))
  const results = (await Promise.all(
    peers.map((peer, index) => peer.call('ring', { members, index, floats, rounds })),
  )) as RingResult[]
  for (const result of results) {
    assert.equal(result.checksum, results[0]?.checksum)
    assert.equal(result.worst, 0)
    assert.equal(result.manifests, 4)
  }
  const seconds = Math.max(...results.map(({ milliseconds }) => milliseconds)) / 1000
  const megabytes = (rounds * 2 * 3 * floats * 4) / 4 / 1e6
  t.diagnostic(
    `${(megabytes / seconds).toFixed(1)} MB/s sent by each member, ` +
      `${((seconds / rounds) * 1000).toFixed(0)} ms per reduce of 4 MB`,
  )
})

async function until(condition: () => boolean): Promise<void> {
  for (const end = performance.now() + 10_000; !condition(); await new Promise((resolve) => setTimeout(resolve, 5)))
    assert.ok(performance.now() < end, 'waited too long')
}
