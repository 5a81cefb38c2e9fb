// Kernel variants that volunteers measured go to others with such an adapter, through real volunteers and a real
// coordinator: the first measures all of them, a later one two of each shape, and what liars named is dropped. How long
// a variant takes is made up: so many variants compile for half a minute on a software adapter.
import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { createCoordinator } from '@starling-grid/coordinator'
import type { ModelSpec } from '@starling-grid/model'
import { ROUTES } from '@starling-grid/protocol'
import { candidatesFor, PLAIN_TRAITS, variantName } from '@starling-grid/shaders'
import { buildGraph, type ExecutorBounds, type VolunteerHost } from '@starling-grid/volunteer'
import { tune, type TuneRequest } from '@starling-grid/volunteer/testing'
import { live } from './lone-volunteer.ts'
import { smallJob } from './small-job.ts'

const TOKEN = 'the-owner-token-of-tests'
const JOB = smallJob({ stop: { epochs: 50 }, minVolunteers: 1 })
const CAPACITY = 16
const TRAITS = { ...PLAIN_TRAITS, software: false }
const GIVE_UP_MS = 60_000

const folder = await mkdtemp(join(tmpdir(), 'starling-'))
process.env['STARLING_CACHE'] = join(folder, 'cache')
after(() => rm(folder, { recursive: true, force: true, maxRetries: 10 }))

/** ms of a variant that has this place among those of its call; the first guess has place 0 */
type Times = (place: number, last: number) => number

const LAST_IS_BEST: Times = (place, last) => (place === last ? 1 : 2 + place / 100)
const FIRST_IS_BEST: Times = (place) => 1 + place

/** An adapter of this class, whose variants take these times. */
function requestOf(spec: ModelSpec, times: Times): TuneRequest {
  return {
    graph: buildGraph(spec),
    capacity: CAPACITY,
    traits: TRAITS,
    adapter: { name: 'an adapter that many have', vendor: 'tests', software: true, executor: 'webgpu' },
    readText: async (url) => url.pathname,
    async prepare([call], choose) {
      assert.ok(call)
      const variants = candidatesFor(call, CAPACITY, TRAITS).filter(({ suits }) => suits)
      const chosen = variantName(choose(call, CAPACITY).candidate)
      const place = variants.findIndex((candidate) => variantName(candidate) === chosen)
      return { run: async () => times(place, variants.length - 1), destroy: () => undefined }
    },
  }
}

interface Tuned {
  /** what it says of its kernels */
  readonly line: string
  readonly measured: number
  readonly shapes: number
}

/** A volunteer of another network comes, tunes, and goes once the coordinator has what it reports. */
async function comes(url: string, from: string, times: Times): Promise<Tuned> {
  const said: string[] = []
  let isTuned: () => void = () => undefined
  const tuned = new Promise<void>((resolve) => {
    isTuned = resolve
  })
  const life = live(url, (host) => ({
    ...fromAddress(host, from),
    async createExecutor(spec, blockSamples, bounds) {
      const reports: Promise<unknown>[] = []
      const shared: ExecutorBounds['variants'] = (adapterClass, report) => {
        const answer = bounds?.variants?.(adapterClass, report) ?? assert.fail('the host is told of others')
        if (report !== undefined) reports.push(answer)
        return answer
      }
      await tune({ budgetMs: GIVE_UP_MS, shared, say: (text) => said.push(text) }, requestOf(spec, times))
      await Promise.all(reports)
      isTuned()
      return host.createExecutor(spec, blockSamples, bounds)
    },
  }))
  await Promise.race([tuned, life.ended.then((error) => assert.fail(`it ended: ${String(error)}`))])
  await life.stop()
  const line = said.find((text) => text.startsWith('kernels: ')) ?? assert.fail(said.join('\n'))
  const [, measured, shapes] = /^kernels: (\d+) variants of (\d+) shapes /.exec(line) ?? assert.fail(line)
  return { line, measured: Number(measured), shapes: Number(shapes) }
}

/** As a proxy in front of the coordinator says it. */
function fromAddress({ sendRequest }: VolunteerHost, from: string): Pick<VolunteerHost, 'sendRequest'> {
  assert.ok(sendRequest)
  return {
    sendRequest: (url, asked) => sendRequest(url, { ...asked, headers: { ...asked.headers, 'x-forwarded-for': from } }),
  }
}

/** A coordinator behind a proxy, with the job, while `task` runs. */
async function withGrid(task: (url: string) => Promise<void>): Promise<void> {
  const dataDir = await mkdtemp(join(folder, 'data-'))
  const coordinator = createCoordinator({ dataDir, token: TOKEN, port: 0, trustedProxies: ['127.0.0.1', '::1'] })
  await coordinator.start()
  try {
    const headers = { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json' }
    const answer = await fetch(coordinator.url + ROUTES.jobs, { method: 'POST', headers, body: JSON.stringify(JOB) })
    assert.equal(answer.status, 201)
    await task(coordinator.url)
  } finally {
    await coordinator.stop()
  }
}

const LIMIT = { timeout: 2 * GIVE_UP_MS }

test('the first volunteers with an adapter measure all variants, the third takes theirs over', LIMIT, () =>
  withGrid(async (url) => {
    const first = await comes(url, '8.8.4.4', LAST_IS_BEST)
    assert.match(first.line, /measured in [\d.]+ s\.$/)
    const second = await comes(url, '9.9.9.9', LAST_IS_BEST)
    assert.equal(second.measured, first.measured, 'one voice spares nothing')
    assert.match(second.line, new RegExp(`; ${first.shapes} named by one volunteer alone, and not taken over\\.$`))
    const third = await comes(url, '1.1.1.1', LAST_IS_BEST)
    assert.ok(first.measured > 2 * first.shapes, first.line)
    assert.equal(third.measured, 2 * first.shapes)
    const taken = `; ${first.shapes} taken over from 2 volunteers with this class of adapter, checked\\.$`
    assert.match(third.line, new RegExp(taken))
  }),
)

test('threat 44: many volunteers of one network are one voice, and their variants are not taken over', LIMIT, () =>
  withGrid(async (url) => {
    for (const from of ['8.8.4.4', '8.8.4.5', '8.8.4.6']) await comes(url, from, FIRST_IS_BEST)
    const newcomer = await comes(url, '1.1.1.1', LAST_IS_BEST)
    assert.match(newcomer.line, /named by one volunteer alone, and not taken over\.$/)
  }),
)

test('threat 44: what two liars named is dropped by a volunteer on which it is slower, which measures all', LIMIT, () =>
  withGrid(async (url) => {
    const first = await comes(url, '8.8.4.4', LAST_IS_BEST)
    await comes(url, '9.9.9.9', LAST_IS_BEST)
    // Where the liars' variant is the slowest of all.
    const newcomer = await comes(url, '1.1.1.1', FIRST_IS_BEST)
    assert.equal(newcomer.measured, first.measured)
    const dropped = `; ${first.shapes} that others named dropped, because they are slower here`
    assert.ok(newcomer.line.includes(dropped), newcomer.line)
    const next = await comes(url, '2.2.2.2', FIRST_IS_BEST)
    assert.match(next.line, /dropped/, 'two against one')
    await comes(url, '3.3.3.3', FIRST_IS_BEST)
    const last = await comes(url, '4.4.4.4', FIRST_IS_BEST)
    assert.match(
      last.line,
      /; \d+ taken over from at least 3 of 5 volunteers with this class of adapter, checked\.$/,
      'three against two',
    )
  }),
)
