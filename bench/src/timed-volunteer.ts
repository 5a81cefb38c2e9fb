// A headless volunteer over a home's line, whose computing takes its time and no core: timed-volunteer.ts URL --name
// NAME. All else is the production volunteer.
import { createNodeHost } from '@starling-grid/client-node/host'
import { parameterCount } from '@starling-grid/model'
import { createVolunteer } from '@starling-grid/volunteer'
import { overLine } from '@starling-grid/volunteer/testing'
import { timedExecutor } from './timed-executor.ts'
import { SAMPLES_PER_SECOND } from './timed-speed.ts'

/** 20 Mbit/s and 20 ms one way: the home lines of the model of scale */
const LINE = { bytesPerMs: 2500, latencyMs: 20 }

const [coordinatorUrl = '', , name = 'timed'] = process.argv.slice(2)
const host = createNodeHost({ coordinatorUrl, executor: 'reference' })
const volunteer = createVolunteer(
  {
    ...overLine(host, LINE),
    createExecutor: (spec) =>
      Promise.resolve(
        timedExecutor(
          parameterCount(spec),
          `${1000 / SAMPLES_PER_SECOND} ms a sample`,
          (samples) => (1000 * samples) / SAMPLES_PER_SECOND,
        ),
      ),
  },
  { name, onStatus: () => undefined },
)
process.on('SIGTERM', () => void volunteer.stop())
process.once('disconnect', () => process.exit(1)) // the benchmark is gone
process.channel?.unref()
await volunteer.run().catch((error: unknown) => console.error(error))
process.exit(0)
