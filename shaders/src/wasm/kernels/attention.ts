// Attention, a piece for each head of each sample, over blocks of queries. qkv (B, T, 3, H, D) → y (B, T, H, D).
// Whether probabilities are kept, or made again in backward from what the flash kernels keep, is all that sets them
// apart: the products are the same.
import type { AttentionDims, KernelName } from '../../kernels.ts'
import { type Binding, matrix } from '../../recipe.ts'
import { elementOf, fillRow, forRow, rowBytesFor, sumRow } from '../loops.ts'
import { exp, log } from '../mathematics.ts'
import { FLOAT_BYTES, onePass, type PieceWriter, type WasmRecipe, type WasmKernel } from '../pass.ts'
import { dotProduct, product, storeFirst } from '../products.ts'
import { f32, float, i32, type I32, type Int, v128 } from '../values.ts'
import { softmaxRow } from './rows.ts'

/** Queries whose scores are made at a time. */
const QUERIES = 32

/** Where the rows of one head lie. */
interface HeadPlace {
  /** sample · heads + head */
  readonly index: I32
  /** of queries, keys or values, first row */
  part(name: 'qkv' | 'dqkv', part: 0 | 1 | 2): I32
  /** of y or dy, first row */
  mixed(name: 'y' | 'dy'): I32
  readonly partBytes: number
  readonly mixedBytes: number
}

function headOf(w: PieceWriter, { length, heads, headSize }: AttentionDims): HeadPlace {
  const first = w.int(i32.mul(i32.divUnsigned(w.piece, heads), length))
  const head = w.int(i32.mul(i32.remUnsigned(w.piece, heads), headSize))
  return {
    index: w.piece,
    part: (name, part) =>
      w.int(w.at(name, i32.add(i32.mul(first, 3 * heads * headSize), i32.add(head, part * heads * headSize)))),
    mixed: (name) => w.int(w.at(name, i32.add(i32.mul(first, heads * headSize), head))),
    partBytes: 3 * heads * headSize * FLOAT_BYTES,
    mixedBytes: heads * headSize * FLOAT_BYTES,
  }
}

interface QueryBlock {
  readonly first: I32
  readonly queries: I32
  /** keys that the block's last query sees */
  readonly seen: I32
}

function forQueries(w: PieceWriter, { length, causal }: AttentionDims, body: (block: QueryBlock) => void): void {
  w.for(0, length, QUERIES, (first) => {
    const end = w.int(i32.min(i32.add(first, QUERIES), length))
    body({ first, queries: w.int(i32.sub(end, first)), seen: causal ? end : w.int(length) })
  })
}

/** Rows of one number for each key. */
interface Scores {
  readonly address: I32
  readonly rowBytes: number
}

function row({ address, rowBytes }: Scores, index: Int): I32 {
  return i32.add(address, i32.mul(index, rowBytes))
}

/** to (queries, seen) = left · rightᵀ, for two sets of rows of D numbers */
function scoresOf(
  w: PieceWriter,
  { headSize }: AttentionDims,
  { queries, seen }: QueryBlock,
  {
    left,
    leftBytes,
    right,
    rightBytes,
    to,
  }: { left: I32; leftBytes: number; right: I32; rightBytes: number; to: Scores },
): void {
  dotProduct(w, {
    options: w.options,
    a: { address: left, rowBytes: leftBytes },
    b: { address: right, columnBytes: rightBytes },
    rows: queries,
    columns: seen,
    steps: headSize,
    put: (query, key, sums) => storeFirst(w, elementOf(row(to, query), key), sums, i32.sub(seen, key)),
  })
}

/** Keys that a query of the block sees. */
function seenBy({ causal }: AttentionDims, { first, seen }: QueryBlock, query: I32): I32 {
  return causal ? i32.add(i32.add(first, query), 1) : seen
}

/** Zeros behind what a query sees, up to where the block does. */
function clearUnseen(w: PieceWriter, scores: I32, count: I32, seen: I32): void {
  w.clear(elementOf(scores, count), i32.mul(i32.sub(seen, count), FLOAT_BYTES))
}

function shapeOf({ length, heads, headSize, causal }: AttentionDims) {
  return { length, heads, headSize, causal: Number(causal) }
}

/** Of a block's scores, in memory of the thread. */
function scoreBytes({ length }: AttentionDims): number {
  return QUERIES * rowBytesFor(length) + 4 * FLOAT_BYTES
}

function inScratch(w: PieceWriter, dims: AttentionDims, place = 0): Scores {
  return { address: i32.add(w.scratch, place * scoreBytes(dims)), rowBytes: rowBytesFor(dims.length) }
}

/** Where the kept probabilities of the block's queries lie. */
function kept(w: PieceWriter, { length }: AttentionDims, head: HeadPlace, { first }: QueryBlock): Scores {
  const query = i32.add(i32.mul(head.index, length), first)
  return { address: w.int(w.at('probabilities', i32.mul(query, length))), rowBytes: length * FLOAT_BYTES }
}

function sizes({ length, heads, headSize }: AttentionDims, capacity: number) {
  const channels = heads * headSize
  return { rows: capacity * length, channels, scores: capacity * heads * length }
}

function attend(name: KernelName, dims: AttentionDims, capacity: number, keeps: Binding): WasmRecipe {
  const { rows, channels } = sizes(dims, capacity)
  const isFlash = keeps.name === 'logSums'
  const scale = 1 / Math.sqrt(dims.headSize)
  return onePass(name, {
    constants: shapeOf(dims),
    bindings: [matrix('qkv', 'read', rows, 3 * channels), keeps, matrix('y', 'write', rows, channels)],
    scratchBytes: isFlash ? scoreBytes(dims) : 0,
    pieces: (samples) => samples * dims.heads,
    write(w) {
      const head = headOf(w, dims)
      const [q, k, v, y] = [head.part('qkv', 0), head.part('qkv', 1), head.part('qkv', 2), head.mixed('y')]
      forQueries(w, dims, (block) => {
        const to = isFlash ? inScratch(w, dims) : kept(w, dims, head, block)
        const left = w.int(i32.add(q, i32.mul(block.first, head.partBytes)))
        scoresOf(w, dims, block, { left, leftBytes: head.partBytes, right: k, rightBytes: head.partBytes, to })
        w.for(0, block.queries, 1, (query) => {
          const scores = w.int(row(to, query))
          const count = w.int(seenBy(dims, block, query))
          const { top, sum } = softmaxRow(w, count, scores, scale)
          clearUnseen(w, scores, count, block.seen)
          if (!isFlash) return
          const logSum = f32.add(f32.mul(top, float(scale)), v128.lane(log(w, v128.splat(sum)), 0))
          const kept = w.variable(logSum)
          w.store(w.at('logSums', i32.add(i32.mul(head.index, dims.length), i32.add(block.first, query))), kept)
        })
        product(w, {
          options: w.options,
          a: { address: to.address, rowBytes: to.rowBytes, stepBytes: FLOAT_BYTES },
          b: { address: v, stepBytes: head.partBytes },
          rows: block.queries,
          columns: dims.headSize,
          steps: block.seen,
          put: (query, column, sums) =>
            storeFirst(
              w,
              elementOf(i32.add(y, i32.mul(i32.add(block.first, query), head.mixedBytes)), column),
              sums,
              i32.sub(dims.headSize, column),
            ),
        })
      })
    },
  })
}

export const attentionForward: WasmKernel<'attention.forward'> = (dims, capacity) =>
  attend(
    'attention.forward',
    dims,
    capacity,
    matrix('probabilities', 'write', sizes(dims, capacity).scores, dims.length),
  )

export const flashAttentionForward: WasmKernel<'flash_attention.forward'> = (dims, capacity) =>
  attend('flash_attention.forward', dims, capacity, matrix('logSums', 'write', sizes(dims, capacity).scores, 1))

// dv = pᵀ dy;  ds = p (dp − Σ p dp)/√D with dp = dy · vᵀ;  dq = ds · k;  dk = dsᵀ q
function attendBackward(name: KernelName, dims: AttentionDims, capacity: number, keeps: Binding): WasmRecipe {
  const { rows, channels } = sizes(dims, capacity)
  const isFlash = keeps.name === 'logSums'
  return onePass(name, {
    constants: shapeOf(dims),
    bindings: [
      matrix('qkv', 'read', rows, 3 * channels),
      keeps,
      matrix('dy', 'read', rows, channels),
      matrix('dqkv', 'write', rows, 3 * channels),
    ],
    scratchBytes: (isFlash ? 2 : 1) * scoreBytes(dims),
    pieces: (samples) => samples * dims.heads,
    write(w) {
      const head = headOf(w, dims)
      clearGradients(w, dims, head)
      forQueries(w, dims, (block) => {
        const probabilities = isFlash ? inScratch(w, dims, 1) : kept(w, dims, head, block)
        if (isFlash) probabilitiesAgain(w, dims, head, { block, to: probabilities })
        scoreGradients(w, dims, head, { block, probabilities })
        writeGradients(w, dims, head, { block, probabilities })
      })
    },
  })
}

function clearGradients(w: PieceWriter, { length, headSize }: AttentionDims, head: HeadPlace): void {
  for (const part of [1, 2] as const) {
    const gradient = w.int(head.part('dqkv', part))
    w.for(0, length, 1, () => {
      fillRow(w, headSize, gradient, () => v128.constant(0))
      w.increase(gradient, head.partBytes)
    })
  }
}

/** e^(score − ln Σ e^score) */
function probabilitiesAgain(
  w: PieceWriter,
  dims: AttentionDims,
  head: HeadPlace,
  { block, to }: { readonly block: QueryBlock; readonly to: Scores },
): void {
  const left = w.int(i32.add(head.part('qkv', 0), i32.mul(block.first, head.partBytes)))
  const right = head.part('qkv', 1)
  scoresOf(w, dims, block, { left, leftBytes: head.partBytes, right, rightBytes: head.partBytes, to })
  w.for(0, block.queries, 1, (query) => {
    const scores = w.int(row(to, query))
    const count = w.int(seenBy(dims, block, query))
    const place = i32.add(i32.mul(head.index, dims.length), i32.add(block.first, query))
    const logSum = w.variable(v128.loadSplat(w.at('logSums', place)))
    fillRow(w, count, scores, (key) =>
      exp(
        w,
        v128.sub(v128.mul(v128.load(elementOf(scores, key)), v128.constant(1 / Math.sqrt(dims.headSize))), logSum),
      ),
    )
    clearUnseen(w, scores, count, block.seen)
  })
}

interface BackwardBlock {
  readonly block: QueryBlock
  readonly probabilities: Scores
}

/** ds, in memory of the thread */
function scoreGradients(
  w: PieceWriter,
  dims: AttentionDims,
  head: HeadPlace,
  { block, probabilities }: BackwardBlock,
): void {
  const to = inScratch(w, dims)
  const left = w.int(i32.add(head.mixed('dy'), i32.mul(block.first, head.mixedBytes)))
  const right = head.part('qkv', 2)
  scoresOf(w, dims, block, { left, leftBytes: head.mixedBytes, right, rightBytes: head.partBytes, to })
  w.for(0, block.queries, 1, (query) => {
    const [p, dp] = [w.int(row(probabilities, query)), w.int(row(to, query))]
    const [mean] = sumRow(w, block.seen, [
      (key) => v128.mul(v128.load(elementOf(p, key)), v128.load(elementOf(dp, key))),
    ])
    const shift = w.variable(v128.splat(mean ?? float(0)))
    const scale = v128.constant(1 / Math.sqrt(dims.headSize))
    forRow(w, block.seen, (key, left) => {
      const ds = v128.mul(v128.mul(v128.load(elementOf(p, key)), v128.sub(v128.load(elementOf(dp, key)), shift)), scale)
      storeFirst(w, elementOf(dp, key), ds, left)
    })
  })
}

function writeGradients(
  w: PieceWriter,
  dims: AttentionDims,
  head: HeadPlace,
  { block, probabilities }: BackwardBlock,
): void {
  const { headSize } = dims
  const ds = inScratch(w, dims)
  const [q, k, dq] = [head.part('qkv', 0), head.part('qkv', 1), head.part('dqkv', 0)]
  product(w, {
    options: w.options,
    a: { address: ds.address, rowBytes: ds.rowBytes, stepBytes: FLOAT_BYTES },
    b: { address: k, stepBytes: head.partBytes },
    rows: block.queries,
    columns: headSize,
    steps: block.seen,
    put: (query, column, sums) =>
      storeFirst(
        w,
        elementOf(i32.add(dq, i32.mul(i32.add(block.first, query), head.partBytes)), column),
        sums,
        i32.sub(headSize, column),
      ),
  })
  const turned = (scores: Scores, from: I32, fromBytes: number, part: 1 | 2): void => {
    const gradient = head.part('dqkv', part)
    product(w, {
      options: w.options,
      a: { address: scores.address, rowBytes: FLOAT_BYTES, stepBytes: scores.rowBytes },
      b: { address: w.int(i32.add(from, i32.mul(block.first, fromBytes))), stepBytes: fromBytes },
      rows: block.seen,
      columns: headSize,
      steps: block.queries,
      put(key, column, sums) {
        const place = w.int(elementOf(i32.add(gradient, i32.mul(key, head.partBytes)), column))
        storeFirst(w, place, v128.add(v128.load(place), sums), i32.sub(headSize, column))
      },
    })
  }
  turned(ds, q, head.partBytes, 1)
  turned(probabilities, head.mixed('dy'), head.mixedBytes, 2)
}

export const attentionBackward: WasmKernel<'attention.backward'> = (dims, capacity) =>
  attendBackward(
    'attention.backward',
    dims,
    capacity,
    matrix('probabilities', 'read', sizes(dims, capacity).scores, dims.length),
  )

export const flashAttentionBackward: WasmKernel<'flash_attention.backward'> = (dims, capacity) =>
  attendBackward('flash_attention.backward', dims, capacity, matrix('logSums', 'read', sizes(dims, capacity).scores, 1))
