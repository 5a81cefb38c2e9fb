import { type CoordinatorApi, isPassing } from '@starling-grid/client/coordinator-api'
// Follows one run until it ends: a block that is redrawn on a terminal, lines in a pipe. A coordinator that goes away
// and comes back, as at a restart, costs nothing but a line.
import { describeError, GridError, plainText, type RunView } from '@starling-grid/protocol'
import { RedrawnBlock } from '../terminal/redrawn-block.ts'
import { progressLine, runLines, stateOf } from './describe-run.ts'

/** ms between looks */
const LOOK_MS = 1000
/** ms between tries while the coordinator is away: the first, and at most */
const FIRST_WAIT_MS = 500
const MOST_WAIT_MS = 5000
/** ms between two lines in a pipe while nothing but numbers changes */
const PIPE_INTERVAL_MS = 10_000

/** Where a run is shown. */
export interface RunDisplay {
  show(run: RunView): void
  away(why: string): void
}

export function displayOn(out: NodeJS.WriteStream, lineMs = PIPE_INTERVAL_MS): RunDisplay {
  return out.isTTY === true ? blockOn(out) : linesOn(out, lineMs)
}

function blockOn(out: NodeJS.WriteStream): RunDisplay {
  const block = new RedrawnBlock(out)
  let last: RunView | undefined
  const draw = (now: readonly string[]): void => block.draw([...(last === undefined ? [] : runLines(last)), ...now])
  return {
    show(run) {
      last = run
      draw([])
    },
    away: (why) => draw([why]),
  }
}

function linesOn(out: NodeJS.WriteStream, lineMs: number): RunDisplay {
  let said = ''
  let saidAt = Number.NEGATIVE_INFINITY
  const say = (key: string, line: string): void => {
    if (key === said && performance.now() - saidAt < lineMs) return
    said = key
    saidAt = performance.now()
    out.write(`${line}\n`)
  }
  return {
    show: (run) => say(`${stateOf(run)} ${run.lastValidation?.v} ${run.memberCount}`, progressLine(run)),
    away: (why) => say('away', why),
  }
}

/** The finished run. @throws GridError what is wrong with the job; never for a coordinator that is away */
export async function watchJob(api: CoordinatorApi, id: string, display: RunDisplay): Promise<RunView> {
  let waitMs = FIRST_WAIT_MS
  for (;;) {
    const run = await api.run(id).catch((error: unknown) => passing(error))
    if (run instanceof GridError) {
      display.away(`no answer, trying again: ${plainText(describeError(run))}`)
      await pause(waitMs)
      waitMs = Math.min(MOST_WAIT_MS, 2 * waitMs)
      continue
    }
    waitMs = FIRST_WAIT_MS
    display.show(run)
    if (run.phase === 'finished') return run
    await pause(LOOK_MS)
  }
}

function passing(error: unknown): GridError {
  if (error instanceof GridError && isPassing(error)) return error
  throw error
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => void setTimeout(resolve, ms))
}
