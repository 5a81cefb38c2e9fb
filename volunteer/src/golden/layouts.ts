// Golden cases hold tensors in PyTorch's shapes; ours differ where operators take packed or differently named inputs.

import { floatTensor, type StoredTensor } from '@starling-grid/protocol'
import { floatsOf, tensorOf, type GoldenCase } from './case.ts'

/** The case with its input as `in.x`, its gradient as `grad.x`, and everything in the shapes of our operators. */
export function inOurLayout(golden: GoldenCase): GoldenCase {
  switch (golden.description['op']) {
    case 'attention':
      return packedAttention(golden)
    case 'embedding':
      return namedTable(golden)
    default:
      return golden
  }
}

export interface Compared {
  readonly what: string
  readonly ours: Float32Array
  readonly wanted: Float32Array
}

/** What there is to compare of ∂/∂x: queries, keys and values each by themselves; nothing of token ids. */
export function inputGradients(golden: GoldenCase, ours: Float32Array): Compared[] {
  switch (golden.description['op']) {
    case 'embedding':
      return []
    case 'attention': {
      const wanted = floatsOf(golden, 'grad.x')
      const rowLength = (tensorOf(golden, 'in.x').shape[2] ?? 0) / PARTS.length
      return PARTS.map((part, i) => ({
        what: `grad.${part}`,
        ours: everyThird(ours, rowLength, i),
        wanted: everyThird(wanted, rowLength, i),
      }))
    }
    default:
      return [{ what: 'grad.x', ours, wanted: floatsOf(golden, 'grad.x') }]
  }
}

const PARTS = ['q', 'k', 'v'] as const

function everyThird(packed: Float32Array, rowLength: number, part: number): Float32Array {
  return packed.filter((_, i) => Math.floor(i / rowLength) % PARTS.length === part)
}

/** q, k, v (b, h, t, d) → x (b, t, 3·h·d), results (b, t, h·d) */
function packedAttention(golden: GoldenCase): GoldenCase {
  const { layout, ...description } = golden.description
  if (layout !== 'b,h,t,d') return golden // parse refuses the attribute that it does not know
  const joined = (prefix: string) => pack(PARTS.map((part) => tensorOf(golden, `${prefix}.${part}`)))
  const tensors = new Map([
    ['in.x', joined('in')],
    ['grad.x', joined('grad')],
    ['y', pack([tensorOf(golden, 'y')])],
    ['dy', pack([tensorOf(golden, 'dy')])],
  ])
  return { description: { ...description, heads: tensorOf(golden, 'in.q').shape[1] }, tensors }
}

function pack(parts: readonly StoredTensor[]): StoredTensor {
  const [b = 0, h = 0, t = 0, d = 0] = parts[0]?.shape ?? []
  const values = parts.map((tensor) => floatsOf({ description: {}, tensors: new Map([['part', tensor]]) }, 'part'))
  const packed = new Float32Array(b * t * parts.length * h * d)
  for (let at = 0; at < packed.length; at++) {
    const column = at % d
    const head = Math.floor(at / d) % h
    const part = Math.floor(at / (d * h)) % parts.length
    const token = Math.floor(at / (d * h * parts.length)) % t
    const sample = Math.floor(at / (d * h * parts.length * t))
    packed[at] = values[part]?.[((sample * h + head) * t + token) * d + column] ?? NaN
  }
  return floatTensor([b, t, parts.length * h * d], packed)
}

/** in.ids → in.x, and the table's sizes as attributes */
function namedTable({ description, tensors }: GoldenCase): GoldenCase {
  const [vocab, channels] = tensors.get('in.weight')?.shape ?? []
  const named = [...tensors].map(([name, tensor]) => [name === 'in.ids' ? 'in.x' : name, tensor] as const)
  return { description: { ...description, vocab, channels }, tensors: new Map(named) }
}
