// A long run of the simulation: `node --import tsx e2e/src/simulation/many-seeds.ts SEEDS [FIRST]`. Prints every seed
// that breaks an invariant with its trace, and at the end what happened how often. Exit code 1 when any did.
import { campaign } from './campaign.ts'
import { explain } from './simulate.ts'

const [seeds = 10_000, first = 1] = process.argv.slice(2).map(Number)
if (!Number.isInteger(seeds) || !Number.isInteger(first)) {
  process.stderr.write('usage: many-seeds.ts SEEDS [FIRST]\n')
  process.exit(2)
}

const began = performance.now()
const { events, failures, counts, slowest } = campaign(first, seeds, {
  each(outcome) {
    if (outcome.violation !== undefined) process.stdout.write(`${explain(outcome)}\n\n`)
    if ((outcome.scenario.seed - first + 1) % 1000 === 0)
      process.stderr.write(`${outcome.scenario.seed - first + 1} of ${seeds} seeds\n`)
  },
})
const seconds = (performance.now() - began) / 1000
process.stdout.write(
  `${seeds} seeds, ${events} events, ${failures.length} with a broken invariant, ${seconds.toFixed(0)} s; ` +
    `at most ${slowest} events after the last fault\n`,
)
process.stdout.write(`${JSON.stringify(counts, undefined, 2)}\n`)
process.exitCode = failures.length > 0 ? 1 : 0
