// A coordinator on a free port with a small job, and a page that watches it.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, afterEach, beforeEach } from 'node:test'
import { type Coordinator, createCoordinator } from '@starling-grid/coordinator'
import {
  allRecords,
  type JobSpec,
  pathTo,
  ROUTES,
  type RunView,
  type StepRecord,
  type WatchMessage,
} from '@starling-grid/protocol'
import { WebSocket } from 'ws'
import type { CoordinatorOptions } from '../src/net/server.ts'
import { FakeVolunteer, type FakeOptions } from './fake-volunteer.ts'

export const TOKEN = 'the-owner-token-of-tests'

export const OWNER = { authorization: `Bearer ${TOKEN}` }

/** Short times: the rules do not change. */
export const QUICK = {
  stateMs: 300,
  rejoinMs: 3000,
  lostMs: 1500,
  formMs: 10_000,
  admitMs: 100,
  checkpointMs: 1000,
  leaseMinMs: 1000,
}

/** pauses between them grow by 100 ms */
const REMOVAL_TRIES = 10

const cleanups: (() => unknown)[] = []
/** how many there were when each test that runs began: runs of tests before it would go on beside it */
const begun: number[] = []
beforeEach(() => {
  begun.push(cleanups.length)
})
afterEach(() => cleanUp(begun.pop()))
after(() => cleanUp())

async function cleanUp(from = 0): Promise<void> {
  for (const cleanup of cleanups.splice(from).reverse()) await cleanup()
}

export async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'starling-'))
  // a request that stopping cut off may still be writing
  cleanups.push(() => rm(folder, { recursive: true, force: true, maxRetries: REMOVAL_TRIES }))
  return folder
}

export async function startCoordinator(options: Partial<CoordinatorOptions> = {}): Promise<Coordinator> {
  const coordinator = createCoordinator({
    dataDir: await temporaryFolder(),
    token: TOKEN,
    port: 0,
    timing: QUICK,
    ...options,
  })
  await coordinator.start()
  cleanups.push(() => coordinator.stop())
  return coordinator
}

/** 36 blocks of at most 256 digits, 9 steps an epoch, a linear model of 7,850 parameters. */
export function smallJob(change: Partial<JobSpec> = {}): JobSpec {
  return {
    name: 'Small digits',
    owner: 'tests',
    purpose: 'To be trained quickly.',
    model: {
      name: 'linear',
      input: [1, 28, 28],
      layers: [{ type: 'flatten' }, { type: 'linear', name: 'fc', out: 10 }],
    },
    dataset: { source: 'digits' },
    optimizer: { type: 'sgd', lr: 0.01, momentum: 0.9 },
    blockSamples: 256,
    batchBlocks: 4,
    stop: { epochs: 2 },
    seed: 3,
    mode: 'ring',
    volunteers: { min: 2 },
    ...change,
  }
}

export async function submit(
  url: string,
  job: unknown,
  token = TOKEN,
): Promise<{ readonly status: number; readonly id: string; readonly code?: string; readonly detail?: string }> {
  const response = await fetch(`${url}${ROUTES.jobs}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    body: JSON.stringify(job),
  })
  return { status: response.status, ...((await response.json()) as { id: string }) }
}

export function volunteer(url: string, options: FakeOptions = {}): FakeVolunteer {
  const fake = new FakeVolunteer(url, options)
  cleanups.push(() => fake.close())
  return fake
}

export async function runOf(url: string, id: string): Promise<RunView> {
  return (await (await fetch(`${url}${pathTo(ROUTES.job, { id })}`, { headers: OWNER })).json()) as RunView
}

/** Resolves when `state` holds of the run; the stream wakes it, not the clock. */
export async function until(
  url: string,
  what: string,
  state: (run: RunView) => boolean,
  limitMs = 60_000,
): Promise<RunView> {
  const { messages, stop } = watch(url)
  const timer = setTimeout(stop, limitMs)
  let last = 'nothing was heard'
  try {
    for await (const message of messages) {
      if (message.type === 'none') continue
      if (state(message.run)) return message.run
      last =
        `${message.run.phase}: ${message.run.reason}, version ${message.run.version.v}, ` +
        `${message.run.members.length} members`
    }
  } finally {
    clearTimeout(timer)
    stop()
  }
  throw new Error(`gave up waiting for ${what}; ${last}`)
}

/** The committed chain, as its owner sees it. */
export async function recordsOf(url: string, id: string): Promise<StepRecord[]> {
  return allRecords(id, async (path) => (await fetch(`${url}${path}`, { headers: OWNER })).json())
}

/** The dashboard's stream as its owner sees it; dials again when it breaks, until stopped. */
export function watch(url: string): { readonly messages: AsyncIterable<WatchMessage>; readonly stop: () => void } {
  const queue: WatchMessage[] = []
  let stopped = false
  let wake = (): void => undefined
  let socket: WebSocket
  const dial = (): void => {
    socket = new WebSocket(`${url.replace(/^http/, 'ws')}${ROUTES.watch}`)
    const own = socket
    socket.on('open', () => own.send(JSON.stringify({ type: 'owner', token: TOKEN })))
    socket.on('message', (data) => {
      const message = JSON.parse(String(data)) as WatchMessage
      if (message.type !== 'none' && message.run.detail === 'totals') return // what it said before it knew the token
      queue.push(message)
      wake()
    })
    socket.on('error', () => undefined) // close follows
    socket.on('close', () => !stopped && setTimeout(dial, 100))
  }
  dial()
  async function* messages(): AsyncGenerator<WatchMessage> {
    while (!stopped) {
      const message = queue.shift()
      if (message !== undefined) yield message
      else
        await new Promise<void>((resolve) => {
          wake = resolve
        })
    }
  }
  const stop = (): void => {
    stopped = true
    socket.close()
    wake()
  }
  return { messages: messages(), stop }
}
