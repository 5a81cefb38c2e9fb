// A member that slept for longer than others bear silence is in the ring again soon after it woke up. In the simulated
// world the others went on without it, in a generation that it does not know. In the real one no message told it that
// they did.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Grid } from '@starling-grid/cli'
import { createNodeHost } from '@starling-grid/client-node/host'
import type { ToCoordinator } from '@starling-grid/protocol'
import { createVolunteer, type VolunteerHost } from '@starling-grid/volunteer'
import { namesInRing } from '../src/chaos/scenario.ts'
import { explain } from '../src/world/campaign.ts'
import { calm, type GridScenario, type Play } from '../src/world/scenario.ts'
import type { VolunteerProcess } from '../src/world/volunteer-process.ts'
import { simulateGrid, type World } from '../src/world/world.ts'
import { QUICK, smallJob } from './small-job.ts'

/** The step at which it falls asleep, and ms until it wakes up: longer than SILENCE_MS. */
const STEP = 5
const SLEEP_MS = 8000
const SEEDS = 20

/**
 * A ring of three and steps enough; one member sleeps. Newcomers are admitted when they are ready, and never out of
 * impatience.
 */
class Sleep implements Play {
  #sleeper: VolunteerProcess | undefined
  #generation = 0
  /** it takes part in a step of a later generation */
  isBack = false

  scenario(drawn: GridScenario): GridScenario {
    const still = calm(drawn)
    return {
      ...still,
      // a step of the others takes longer than to fetch one
      members: { ...still.members, latencyMs: 40, digestMs: 0, linkBytesPerMs: 200 },
      seats: 3,
      computeMs: 500,
      transferMs: 1000,
      shape: { ...drawn.shape, epochs: 1, blocks: 100, batchBlocks: 2, volunteers: { min: 3 } },
    }
  }

  direct(world: World): void {
    world.onMoment = (member, { at }) => {
      const ring = world.observer.ringOf(member)
      if (ring === undefined) return
      if (at === 'applied' && member === this.#sleeper && ring.generation > this.#generation) this.isBack = true
      if (at !== 'computed' || this.#sleeper !== undefined || ring.members.length < 3 || ring.step !== STEP) return
      this.#sleeper = member
      this.#generation = ring.generation
      member.clock.standStill(SLEEP_MS)
    }
  }
}

test(`a member that slept is back in the ring before the run ends, in ${SEEDS} networks`, async () => {
  for (let seed = 1; seed <= SEEDS; seed++) {
    const play = new Sleep()
    const outcome = await simulateGrid(seed, { mode: 'ring', play })
    if (outcome.violation !== undefined) assert.fail(await explain(outcome, { mode: 'ring', play: new Sleep() }))
    assert.ok(play.isBack, `seed ${seed}: the run ended without it`)
  }
})

const TIMING = QUICK
/** More than any machine trains meanwhile: the run need not end. */
const STEPS = 100_000
const NIGHT_MS = 8 * 3600 * 1000

/** The first messages that a volunteer says on each of its sockets. */
function noting(host: VolunteerHost, hellos: ToCoordinator[]): VolunteerHost {
  return {
    ...host,
    dialCoordinator: async (path) => {
      const socket = await host.dialCoordinator(path)
      const send = socket.send.bind(socket)
      socket.send = (text) => {
        const message = JSON.parse(text) as ToCoordinator
        if (message.type === 'hello') hellos.push(message)
        send(text)
      }
      return socket
    },
  }
}

test(
  'a volunteer that slept opens its socket and links anew and is back in the ring',
  { timeout: 120_000 },
  async (t) => {
    const grid = await Grid.start({ timing: TIMING })
    const hellos: ToCoordinator[] = []
    const sleeper = createVolunteer(
      noting(createNodeHost({ coordinatorUrl: grid.url, executor: 'reference' }), hellos),
      { name: 'sleeper', onStatus: () => undefined },
    )
    try {
      await grid.submit(smallJob({ stop: { steps: STEPS }, minVolunteers: 2 }))
      grid.addVolunteer({ executor: 'reference' })
      const living = sleeper.run()
      await grid.watch.waitFor('some steps of two', ({ run }) => (run?.version.v ?? 0) >= 5)
      const { generation } = grid.watch.run ?? { generation: 0 }
      const clock = Date.now
      t.mock.method(Date, 'now', () => clock() + NIGHT_MS)
      await grid.watch.waitFor(
        'the sleeper back in the ring',
        ({ run }) => run?.phase === 'ring' && run.generation > generation && namesInRing(run).has('sleeper'),
      )
      const { v } = grid.watch.run?.version ?? { v: 0 }
      await grid.watch.waitFor(
        'a step with it',
        ({ run }) => run !== undefined && run.version.v > v && namesInRing(run).has('sleeper'),
      )
      const [first, second, ...more] = hellos
      assert.deepEqual(
        [first?.type === 'hello' && 'again' in first, second?.type === 'hello' && 'again' in second, more.length],
        [false, true, 0],
      )
      await sleeper.stop()
      await living
    } finally {
      await sleeper.stop()
      await grid.stop()
    }
  },
)
