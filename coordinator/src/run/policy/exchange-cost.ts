// What one global batch costs in a ring and in local rounds, from what was measured in the one that runs. That is the
// time between commits, less what the members need to compute. The mode follows T_exchange against T_compute, with
// hysteresis.

/** Moving averages of a running generation, per committed record: one global batch, or one round of several. */
export interface StepPace {
  /** records measured */
  readonly records: number
  /** ms between commits */
  readonly recordMs: number
  /** ms of computing, assignments in proportion to speed */
  readonly computeMs: number
}

export interface ModeCosts {
  /** predicted ms of one global batch */
  readonly ring: number
  readonly local: number
}

/** weight of the newest record */
const NEWEST_WEIGHT = 0.1
/** Records before the averages say anything: the first of a generation waits for links to warm up. */
const SETTLED_RECORDS = 20
const SETTLED_ROUNDS = 3
/**
 * Local rounds learn a little less from a sample, so they must promise twice the speed. The ring comes back when it
 * loses a quarter at most.
 */
const LOCAL_PAYS = 2
const RING_PAYS = 1.25

export function measure(pace: StepPace | undefined, recordMs: number, computeMs: number): StepPace {
  if (pace === undefined) return { records: 1, recordMs, computeMs }
  const mix = (old: number, now: number): number => old + NEWEST_WEIGHT * (now - old)
  return {
    records: pace.records + 1,
    recordMs: mix(pace.recordMs, recordMs),
    computeMs: mix(pace.computeMs, computeMs),
  }
}

/**
 * Which of the two is cheaper by enough; undefined while too little is known. `innerSteps`: H, global batches in a
 * round.
 */
export function cheaper(
  pace: StepPace | undefined,
  current: 'ring' | 'local',
  innerSteps: number,
): { readonly mode: 'ring' | 'local'; readonly costs: ModeCosts } | undefined {
  if (pace === undefined || innerSteps <= 1 || pace.records < (current === 'ring' ? SETTLED_RECORDS : SETTLED_ROUNDS))
    return undefined
  const costs = costsOf(pace, current, innerSteps)
  if (current === 'ring') return { mode: costs.ring > LOCAL_PAYS * costs.local ? 'local' : 'ring', costs }
  return { mode: costs.ring < RING_PAYS * costs.local ? 'ring' : 'local', costs }
}

function costsOf({ recordMs, computeMs }: StepPace, current: 'ring' | 'local', innerSteps: number): ModeCosts {
  const exchange = Math.max(0, recordMs - computeMs)
  const compute = current === 'ring' ? computeMs : computeMs / innerSteps
  return { ring: compute + exchange, local: compute + exchange / innerSteps }
}

export function costsAsText({ ring, local }: ModeCosts): string {
  return `a batch would take ${Math.round(ring)} ms in the ring and ${Math.round(local)} ms in local rounds`
}
