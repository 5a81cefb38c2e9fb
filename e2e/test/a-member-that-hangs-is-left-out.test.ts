// A member that is alive and does not contribute: real volunteers and a real coordinator in one process, links in
// memory.
import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { createNodeHost } from '@starling-grid/client-node/host'
import { createCoordinator } from '@starling-grid/coordinator'
import type { Exchange, Sha256 } from '@starling-grid/protocol'
import { createVolunteer, type VolunteerHost } from '@starling-grid/volunteer'
import { MemoryGrid, type Volunteer } from '@starling-grid/volunteer/testing'
import { QUICK, tinyJob } from './small-job.ts'

/** Gradients that the faulty executor computes before it never returns again: two are the measurement of speed. */
const COMPUTED = 8
/** Steps that have to follow without it. */
const STEPS_AFTER = 5
const TOKEN = 'the-owner-token-of-tests'

function hostOf(coordinatorUrl: string, links: MemoryGrid, hangs: boolean): VolunteerHost {
  const host = createNodeHost({ coordinatorUrl, executor: 'reference' })
  const shards = new Map<Sha256, Uint8Array>()
  return {
    ...host,
    shards: {
      get: (name) => Promise.resolve(shards.get(name)),
      put: (name, bytes) => Promise.resolve(void shards.set(name, bytes)),
    },
    openPeerNetwork: (access) => Promise.resolve(links.join(access.self)),
    async createExecutor(spec, blockSamples) {
      const executor = await host.createExecutor(spec, blockSamples)
      let gradients = 0
      return {
        ...executor,
        gradient: (batch, into, early) =>
          hangs && ++gradients > COMPUTED ? new Promise(() => undefined) : executor.gradient(batch, into, early),
      }
    },
  }
}

/** Until the ring goes on without the member that hangs; the events of the run. */
async function hang(exchange: Exchange, members: number): Promise<string> {
  const dataDir = await mkdtemp(join(tmpdir(), 'starling-'))
  const coordinator = createCoordinator({ dataDir, token: TOKEN, port: 0, timing: QUICK })
  const volunteers: Volunteer[] = []
  try {
    await coordinator.start()
    const run = await coordinator.runs.submit({
      ...tinyJob({ stop: { steps: 100_000 }, minVolunteers: members }),
      exchange,
    })
    const links = new MemoryGrid()
    for (let i = 0; i < members; i++)
      volunteers.push(
        createVolunteer(hostOf(coordinator.url, links, i === 0), {
          name: i === 0 ? 'hung' : `honest-${i}`,
          onStatus: () => undefined,
        }),
      )
    for (const volunteer of volunteers) void volunteer.run().catch(() => undefined)
    const events = (): string => run.history.events.map(({ text }) => text).join('\n')
    let resumedAt: number | undefined
    for (;;) {
      const { phase, chain } = run.state
      if (resumedAt === undefined && /hung is out of the ring/.test(events()) && phase.type === 'ring')
        resumedAt = chain.head.v
      if (resumedAt !== undefined && chain.head.v >= resumedAt + STEPS_AFTER) break
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
    return events()
  } finally {
    await Promise.all(volunteers.map((volunteer) => volunteer.stop()))
    await coordinator.stop()
    await rm(dataDir, { recursive: true, force: true })
  }
}

describe(
  'threat 36: a member whose GPU hangs is named and left out, and the others go on',
  { concurrency: true },
  () => {
    for (const exchange of ['ring', 'direct'] as const)
      for (const members of [2, 3, 4])
        test(
          `${exchange === 'ring' ? 'around the ring' : 'in direct exchange'}, ${members} members`,
          { timeout: 300_000 },
          async () => {
            const events = await hang(exchange, members)
            assert.match(events, /^ballot \d+: hung held step \d+ up for \d+ s$/m)
            assert.doesNotMatch(events, /honest-\d is out of the ring/)
          },
        )
  },
)
