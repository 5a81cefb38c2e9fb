// What happened to a run, line by line; and on, as it happens.
import { describeError, GridError, plainText, type RunEvent } from '@starling-grid/protocol'
import { type CoordinatorApi, isPassing } from '../api/coordinator-api.ts'

/** ms between looks for new events */
const LOOK_MS = 1000

export function eventLine({ at, kind, text }: RunEvent): string {
  return `${new Date(at).toISOString()}  ${kind.padEnd('generation'.length)}  ${plainText(text)}`
}

/** Tells of each event once, until `isOver`. A coordinator that is away is asked again. */
export async function followEvents(
  api: CoordinatorApi,
  id: string,
  { say, isOver }: { say(event: RunEvent): void; isOver(): boolean },
): Promise<void> {
  let since = 0
  let told = new Set<string>()
  while (!isOver()) {
    const events = await api.events(id, since).catch((error: unknown) => passing(error))
    const fresh = events.filter((event) => !told.has(JSON.stringify(event)))
    for (const event of fresh) say(event)
    if (events.length > 0) {
      since = Math.floor(Math.max(since, ...events.map(({ at }) => at)))
      // those of the newest millisecond come again with the next answer
      told = new Set(events.filter(({ at }) => at >= since).map((event) => JSON.stringify(event)))
    }
    await new Promise((resolve) => void setTimeout(resolve, LOOK_MS))
  }
}

function passing(error: unknown): readonly RunEvent[] {
  if (!(error instanceof GridError) || !isPassing(error)) throw error
  process.stderr.write(`no answer, trying again: ${plainText(describeError(error))}\n`)
  return []
}
