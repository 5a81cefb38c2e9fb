// START HERE: one seed, one simulated run under faults, with every invariant checked after every event. The same seed
// always gives the same run; a seed that fails is told with the trace of its last events.
import type { StepRecord } from '@starling-grid/protocol'
import { type Invariant, type Violation, Violations } from '../world/violations.ts'
import type { Counts } from './counts.ts'
import { scenarioOf, type Scenario, type SimulationOptions } from './scenario.ts'
import { World } from './world.ts'

/** I9: events that may follow the last fault before the run is finished, and more for each step of it. */
const CALM_EVENTS = 5000
const CALM_EVENTS_PER_STEP = 150
/** Lines of trace that are kept. */
const TRACE_LINES = 60

export interface SimulateOptions extends SimulationOptions {
  readonly trace?: boolean
  /** not looked at: to see what else a broken rule breaks */
  readonly ignore?: ReadonlySet<Invariant>
  readonly play?: Play
}

/** A play instead of chance: another scenario for the seed, and what happens in it. */
export interface Play {
  scenario(drawn: Scenario): Scenario
  direct(world: World): void
}

export interface Outcome {
  readonly scenario: Scenario
  readonly violation: Violation | undefined
  readonly events: number
  /** events after the last fault */
  readonly calmEvents: number
  readonly counts: Counts
  /** the committed history */
  readonly records: readonly StepRecord[]
  readonly trace: readonly string[]
}

export function simulate(seed: number, options: SimulateOptions = {}): Outcome {
  const drawn = scenarioOf(seed, options)
  const scenario = options.play?.scenario(drawn) ?? drawn
  const violations = new Violations(options.ignore ?? new Set())
  const trace: string[] = []
  const keep = (line: () => string): void => remember(trace, line())
  const world = new World(scenario, violations, options.trace === true ? keep : () => undefined)
  options.play?.direct(world)
  const { epochs, blocks, batchBlocks } = scenario.config
  const patience = CALM_EVENTS + CALM_EVENTS_PER_STEP * epochs * Math.ceil(blocks / batchBlocks)
  let events = 0
  let calmEvents = 0
  while (violations.first === undefined && !world.chronicle.finished) {
    world.step()
    world.check()
    events++
    calmEvents = world.faults.left > 0 ? 0 : calmEvents + 1
    if (calmEvents > patience) violations.report('I9', `not finished ${patience} events after the last fault`)
  }
  world.checkEnd()
  return {
    scenario,
    violation: violations.first,
    events,
    calmEvents,
    counts: world.counts,
    records: world.chronicle.records,
    trace,
  }
}

function remember(trace: string[], line: string): void {
  if (line !== '' && trace.push(line) > TRACE_LINES) trace.shift()
}

/** What to print for a seed that failed: what broke, and how to see it again. */
export function explain(outcome: Outcome, options: SimulateOptions = {}): string {
  const { scenario, violation } = outcome
  const { config, network, seats, faults, defect } = scenario
  const { trace } = simulate(scenario.seed, { ...options, trace: true })
  const setting =
    `${seats} members, ${network} network, mode ${config.mode}, ` +
    `${config.epochs} × ${config.blocks} blocks in batches of ${config.batchBlocks}, ` +
    `${faults} faults${defect === undefined ? '' : `, first seat: ${defect}`}`
  return [
    `seed ${scenario.seed} breaks ${violation?.invariant}: ${violation?.text}`,
    setting,
    ...trace.map((line) => `  ${line}`),
  ].join('\n')
}
