// Marked tokens of many examples → samples of a fixed length: several short examples share one, what is too long is
// cut. A target is the next token where it is learned, and counts for nothing elsewhere. Pure.
import { IGNORED } from '@starling-grid/model'
import type { MarkedTokens } from './chat-tokens.ts'

/** Samples (count, context). */
export interface PackedSamples {
  readonly count: number
  readonly x: Int32Array
  /** IGNORED where a target counts for nothing */
  readonly y: Int32Array
  /** examples of which the end is left out */
  readonly cut: number
  /** examples that teach nothing: no learned token fits */
  readonly dropped: number
}

/** Samples that are not full yet: with more, few places are left empty anyway. */
const OPEN = 64

interface TargetPairs {
  readonly x: number[]
  readonly y: number[]
}

/** `pack`: false gives each example a sample of its own */
export function packed(
  examples: readonly MarkedTokens[],
  { context, pack }: { readonly context: number; readonly pack: boolean },
): PackedSamples {
  const full: TargetPairs[] = []
  const open: TargetPairs[] = []
  let [cut, dropped] = [0, 0]
  for (const example of examples) {
    const pair = pairOf(example, context)
    if (example.tokens.length - 1 > context) cut++
    if (!pair.y.some((target) => target !== IGNORED)) {
      dropped++
      continue
    }
    const place = pack ? open.findIndex(({ x }) => x.length + pair.x.length <= context) : -1
    const shared = open[place]
    if (shared === undefined) open.push(pair)
    else open[place] = { x: [...shared.x, ...pair.x], y: [...shared.y, ...pair.y] }
    if (open.length > OPEN) full.push(...open.sort((a, b) => b.x.length - a.x.length).splice(0, 1))
  }
  return { ...laidOut([...full, ...open], context), cut, dropped }
}

function pairOf({ tokens, learned }: MarkedTokens, context: number): TargetPairs {
  const length = Math.min(context, tokens.length - 1)
  const places = Array.from({ length: Math.max(0, length) }, (_, i) => i)
  return {
    x: places.map((i) => tokens[i] ?? 0),
    y: places.map((i) => (learned[i + 1] === true ? (tokens[i + 1] ?? 0) : IGNORED)),
  }
}

/** What is empty has token 0 behind all else, where a causal model does not look. */
function laidOut(pairs: readonly TargetPairs[], context: number): Pick<PackedSamples, 'count' | 'x' | 'y'> {
  const x = new Int32Array(pairs.length * context)
  const y = new Int32Array(pairs.length * context).fill(IGNORED)
  for (const [i, pair] of pairs.entries()) {
    x.set(pair.x, i * context)
    y.set(pair.y, i * context)
  }
  return { count: pairs.length, x, y }
}
