// What others with this class of adapter measured, as the tuner uses it, and what this volunteer tells them. An answer
// that does not come, or is none, costs ANSWER_MS at most: then everything is measured here.
import {
  describeError,
  MAX_VARIANT_BYTES,
  MOST_NAMED,
  MOST_SHAPE_TEXT,
  MOST_VOTED_SHAPES,
  parse,
  parseJson,
  type Sha256,
  systemClock,
  type VariantReport,
  type VariantVotes,
  VariantVotesSchema,
} from '@starling-grid/protocol'
import type { SharedVariants } from '../graph/shared-variants.ts'
import type { VariantVote } from './measuring-order.ts'
import type { TuningTable } from './tuning-table.ts'

/** What others say: of each shape. */
export interface SharedVotes {
  /** whose reports the coordinator has */
  readonly volunteers: number
  readonly ofShape: ReadonlyMap<string, VariantVote>
}

export const NO_VOTES: SharedVotes = { volunteers: 0, ofShape: new Map() }

/** ms: a line around the world and a busy coordinator take half of it */
const ANSWER_MS = 1000

export async function askForVotes(
  shared: SharedVariants,
  adapterClass: Sha256,
  say: (text: string) => void,
): Promise<SharedVotes> {
  try {
    return readVotes(await within(shared(adapterClass), ANSWER_MS))
  } catch (error) {
    say(`Kernels that others measured on such an adapter did not come, all are measured here: ${describeError(error)}`)
    return NO_VOTES
  }
}

/** @throws GridError 'message-too-large', 'message-malformed' */
export function readVotes(bytes: Uint8Array): SharedVotes {
  const what = 'the votes on variants'
  const votes: VariantVotes = parse(
    VariantVotesSchema,
    parseJson(new TextDecoder().decode(bytes), MAX_VARIANT_BYTES, what),
    what,
  )
  return { volunteers: votes.volunteers, ofShape: new Map(votes.shapes.map((vote) => [vote.shape, vote])) }
}

/**
 * What this volunteer measured itself, and whole: what it took over would come back to it as another voice. `shapes`:
 * of the plan. Undefined: nothing.
 */
export function reportOf(table: TuningTable, shapes: Iterable<string>): Uint8Array | undefined {
  const measured: VariantReport['shapes'][number][] = []
  for (const shape of shapes) {
    const entry = table.get(shape)
    if (entry?.asGood === undefined || shape.length > MOST_SHAPE_TEXT) continue
    if (measured.length < MOST_VOTED_SHAPES)
      measured.push({ shape, variants: [entry.variant, ...entry.asGood].slice(0, MOST_NAMED), ms: entry.ms })
  }
  return measured.length === 0 ? undefined : new TextEncoder().encode(JSON.stringify({ shapes: measured }))
}

function within<T>(work: Promise<T>, ms: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const cancel = systemClock.timer(ms, () => reject(new Error(`expected an answer within ${ms} ms, got none`)))
    work.then(resolve, reject).finally(cancel)
  })
}
