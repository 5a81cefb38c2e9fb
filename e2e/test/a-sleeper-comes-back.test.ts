// A member that slept for longer than others bear silence is in the ring again soon after it woke up. In the simulated
// world the others went on without it meanwhile, in a generation that it never heard of; in the real one nothing told
// it that they did.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Grid } from '@starling-grid/cli'
import { createNodeHost } from '@starling-grid/client-node/host'
import type { ToCoordinator } from '@starling-grid/protocol'
import { createVolunteer, type VolunteerHost } from '@starling-grid/volunteer'
import { namesInRing } from '../src/chaos/scenario.ts'
import { CALM, type Scenario } from '../src/simulation/scenario.ts'
import { explain, type Play, simulate } from '../src/simulation/simulate.ts'
import type { VolunteerProcess } from '../src/simulation/volunteer-process.ts'
import type { World } from '../src/simulation/world.ts'
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

  scenario(drawn: Scenario): Scenario {
    const { config } = drawn
    return {
      ...drawn,
      ...CALM,
      seats: 3,
      computeMs: 500,
      transferMs: 1000,
      linksMs: 200,
      config: {
        ...config,
        epochs: 1,
        blocks: 100,
        batchBlocks: 2,
        validationBlocks: 0,
        minVolunteers: 3,
        timing: config.timing,
      },
    }
  }

  direct(world: World): void {
    world.onMoment = (member, moment) => {
      if (moment.at !== 'after' || moment.what !== 'compute') return
      const { ring } = member.core
      if (this.#sleeper === undefined && ring?.members.length === 3 && ring.flight?.step === STEP)
        this.#sleeps(world, member)
      else if (member === this.#sleeper && (ring?.generation ?? 0) > this.#generation) this.isBack = true
    }
  }

  #sleeps(world: World, member: VolunteerProcess): void {
    this.#sleeper = member
    this.#generation = member.core.promised
    world.suspend(member, SLEEP_MS)
  }
}

test(`a member that slept is back in the ring before the run ends, in ${SEEDS} networks`, () => {
  for (let seed = 1; seed <= SEEDS; seed++) {
    const sleep = new Sleep()
    const outcome = simulate(seed, { mode: 'ring', play: sleep })
    assert.equal(
      outcome.violation,
      undefined,
      outcome.violation === undefined ? '' : explain(outcome, { mode: 'ring', play: new Sleep() }),
    )
    assert.ok(sleep.isBack, `seed ${seed}: the run ended without it`)
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
      await grid.submit(smallJob({ maxSteps: STEPS, minVolunteers: 2 }))
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
