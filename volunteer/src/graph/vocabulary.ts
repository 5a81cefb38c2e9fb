// Large vocabularies. A table that no binding holds is read in chunks of its rows. The last product and its
// cross-entropy run over pieces of the classes: each piece's logits are looked at and dropped, and backward makes them
// again, so that the logits of all classes are never in memory. Pure: call lists in, call lists out.

import { lastSize, PIECE_STATE, type KernelCallOf } from '@starling-grid/shaders'
import type { Graph } from './build.ts'
import { firstFreeStorage, tensorsOf, type Call } from './storages.ts'
import type { Tensor } from './tensor.ts'

/** What decides how a vocabulary is cut. */
export interface VocabularyBounds {
  /** of one binding */
  readonly maxBindingBytes: number
  /** samples of one run */
  readonly capacity: number
}

const FLOAT_BYTES = Float32Array.BYTES_PER_ELEMENT
/** Rows begin where a buffer can be bound, however long they are: at multiples of 256 bytes. */
const ROW_STEP = 64
/** Kernels bind up to two groups of four past the end of a tensor. */
const SLACK_ELEMENTS = 8
/** Bytes of one sample's logits that are kept whole: making them a second time costs a third of the last product. */
const WHOLE_LOGITS_BYTES = 64 * 1024 * 1024
/** Bytes of the logits of a piece: enough rows and columns for any tile. */
const PIECE_BYTES = 16 * 1024 * 1024

type ClassProduct = KernelCallOf<'linear.forward', Tensor>
type Entropy = KernelCallOf<'cross_entropy.loss', Tensor>

/** The same graph; its large tables in chunks, and its classes in pieces where one sample has many logits. */
export function cutVocabulary(graph: Graph, bounds: VocabularyBounds): Graph {
  const fused = fusedHead(graph, bounds)
  const rows = fused && pieceRows(fused.head, bounds)
  const chunks = chunkedTables(graph, { ...bounds, fused, step: rows ?? ROW_STEP })
  if (chunks.size === 0 && !fused) return graph
  const cutter = new Cutter(graph, chunks)
  const forward = graph.forward.flatMap((call) => cutter.table(call))
  const whole: Graph = {
    ...graph,
    forward,
    evaluation: graph.evaluation === graph.forward ? forward : graph.evaluation.flatMap((call) => cutter.table(call)),
    backward: graph.backward.flatMap((call) => cutter.table(call)),
    chunks: flatChunks(chunks),
  }
  return fused && rows !== undefined ? cutter.inPieces(whole, fused, rows) : whole
}

/** By where the parameter begins in the layout: the graph's parameters that lie in chunks of so many elements. */
function flatChunks(chunks: Chunks): ReadonlyMap<number, number> {
  return new Map(
    [...chunks.values()].flatMap(({ table, rows }) =>
      table.role === 'parameter' ? [[table.offset, rows * lastSize(table.shape)] as const] : [],
    ),
  )
}

interface ChunkedTable {
  readonly table: Tensor
  /** of each chunk but the last */
  readonly rows: number
}

/** By `keyOf` the table. */
type Chunks = ReadonlyMap<string, ChunkedTable>

/** The same of a parameter and of its gradient. */
function keyOf({ role, offset }: Tensor): string {
  return `${role === 'fixed' ? 'fixed' : 'parameter'} ${offset}`
}

/** Tables above a binding that only kernels use which can read them in chunks. */
function chunkedTables(
  graph: Graph,
  { maxBindingBytes, fused, step }: VocabularyBounds & { readonly fused: FusedHead | undefined; readonly step: number },
): Chunks {
  const calls = [...new Set([...graph.forward, ...graph.evaluation, ...graph.backward])]
  const tables = new Map<string, ChunkedTable>()
  for (const { kernel, operands } of calls) {
    if (kernel !== 'embedding.forward' && kernel !== 'linear.forward') continue
    const { weight: table } = operands
    if (bindingBytesOf(table) <= maxBindingBytes || !isFlatOrFixed(table)) continue
    const columns = lastSize(table.shape)
    const rows = Math.floor((maxBindingBytes / FLOAT_BYTES - SLACK_ELEMENTS) / columns / step) * step
    const users = calls.filter((call) =>
      tensorsOf(call).some((tensor) => isFlatOrFixed(tensor) && keyOf(tensor) === keyOf(table)),
    )
    if (rows > 0 && users.every((call) => canChunk(call, fused))) tables.set(keyOf(table), { table, rows })
  }
  return tables
}

function canChunk(call: Call, fused: FusedHead | undefined): boolean {
  switch (call.kernel) {
    case 'embedding.forward':
    case 'embedding.parameterGradient':
      return true
    case 'linear.forward':
      return (fused !== undefined && isProductOf(call, fused.head)) || (call.dims.rows === 1 && isPlain(call))
    default:
      return fused !== undefined && isOfHead(call, fused.loss)
  }
}

function isPlain({ dims, operands }: ClassProduct): boolean {
  return dims.activation === undefined && operands.residual === undefined
}

function isFlatOrFixed({ role }: Tensor): boolean {
  return role === 'parameter' || role === 'parameterGradient' || role === 'fixed'
}

function bindingBytesOf({ size }: Tensor): number {
  return FLOAT_BYTES * (Math.ceil(size / 4) * 4 + SLACK_ELEMENTS)
}

interface FusedHead {
  readonly head: ClassProduct
  readonly loss: Entropy
}

/**
 * The product that makes the logits, where one sample's are many and nothing but the loss and its gradient uses them.
 */
function fusedHead(graph: Graph, { maxBindingBytes }: VocabularyBounds): FusedHead | undefined {
  const [loss, ...others] = graph.loss
  if (loss?.kernel !== 'cross_entropy.loss' || others.length > 0) return undefined
  const logits = graph.output.storage
  const head = graph.forward.at(-1)
  if (head?.kernel !== 'linear.forward' || head.operands.y.storage !== logits || !isPlain(head)) return undefined
  if (graph.evaluation !== graph.forward && !isSameProduct(graph.evaluation.at(-1), head)) return undefined
  const gradient = graph.outputGradient.storage
  const users = [...graph.forward.slice(0, -1), ...graph.evaluation.slice(0, -1), ...graph.backward].filter((call) =>
    tensorsOf(call).some(({ storage }) => storage === logits || storage === gradient),
  )
  const ofHead = users.every((call) => isOfHead(call, loss))
  const isLarge =
    FLOAT_BYTES * graph.output.size > Math.min(WHOLE_LOGITS_BYTES, maxBindingBytes) ||
    bindingBytesOf(head.operands.weight) > maxBindingBytes
  return ofHead && isLarge ? { head, loss } : undefined
}

function isSameProduct(call: Call | undefined, head: ClassProduct): boolean {
  return (
    call?.kernel === 'linear.forward' &&
    call.operands.y.storage === head.operands.y.storage &&
    call.operands.x.storage === head.operands.x.storage
  )
}

/** Classes of a piece: as many as its logits and its rows of the weights have room for. */
function pieceRows({ dims }: ClassProduct, { maxBindingBytes, capacity }: VocabularyBounds): number {
  const ofLogits = Math.min(PIECE_BYTES, maxBindingBytes) / FLOAT_BYTES - SLACK_ELEMENTS
  const ofWeights = maxBindingBytes / FLOAT_BYTES - SLACK_ELEMENTS
  const most = Math.min(ofLogits / (capacity * dims.rows), ofWeights / dims.in)
  return Math.max(ROW_STEP, Math.floor(most / ROW_STEP) * ROW_STEP)
}

interface RowRun {
  readonly first: number
  readonly count: number
}

function partsOf(count: number, rows: number): RowRun[] {
  return Array.from({ length: Math.ceil(count / rows) }, (_, i) => ({
    first: i * rows,
    count: Math.min(rows, count - i * rows),
  }))
}

class Cutter {
  readonly #chunks: Chunks
  readonly #next: () => number
  /** tensor and first row of a part → its storage: equal parts are recognised by it */
  readonly #storages = new Map<string, number>()

  constructor(graph: Graph, chunks: Chunks) {
    let free = firstFreeStorage(graph)
    this.#next = () => free++
    this.#chunks = chunks
  }

  /** A call that reads or writes a chunked table, as one call for each chunk. */
  table(call: Call): Call[] {
    switch (call.kernel) {
      case 'embedding.forward':
        return this.#partsOf(call.operands.weight).map(({ first, count }) => ({
          ...call,
          dims: { ...call.dims, vocab: count, first },
          operands: { ...call.operands, weight: this.#rows(call.operands.weight, first, count) },
        }))
      case 'embedding.parameterGradient':
        return this.#partsOf(call.operands.dweight).map(({ first, count }) => ({
          ...call,
          dims: { ...call.dims, vocab: count, first },
          operands: { ...call.operands, dweight: this.#rows(call.operands.dweight, first, count) },
        }))
      case 'linear.forward':
        return call.dims.rows === 1 ? this.#wideProduct(call) : [call]
      default:
        return [call]
    }
  }

  /** Results of a chunk each, one after the other in y. */
  #wideProduct(call: ClassProduct): Call[] {
    const { x, y, weight, bias } = call.operands
    const parts = this.#partsOf(weight)
    if (parts.length === 1) return [call]
    return parts.flatMap(({ first, count }): Call[] => {
      const own = this.#like(y, `${y.name} from ${first}`, count)
      return [
        {
          kernel: 'linear.forward',
          dims: { ...call.dims, out: count },
          operands: { x, y: own, weight: this.#rows(weight, first, count), ...this.#biasPart(bias, first, count) },
        },
        {
          kernel: 'concat.forward',
          dims: { size: count, offset: first, total: call.dims.out },
          operands: { x: own, y },
        },
      ]
    })
  }

  #partsOf(table: Tensor): RowRun[] {
    const [count = 0] = table.shape
    return partsOf(count, this.#chunks.get(keyOf(table))?.rows ?? count)
  }

  inPieces(graph: Graph, { head, loss }: FusedHead, rows: number): Graph {
    const pieces = this.#partsOf(head.operands.weight).flatMap((chunk) =>
      partsOf(chunk.count, rows).map(({ first, count }) => ({ first: chunk.first + first, count })),
    )
    const forward = graph.forward.filter((call) => !isProductOf(call, head))
    const sums = this.#like(loss.operands.loss, 'log sums', loss.dims.rows, 'activation')
    return {
      ...graph,
      forward,
      evaluation:
        graph.evaluation === graph.forward ? forward : graph.evaluation.filter((call) => !isProductOf(call, head)),
      logits: pieces.map((piece) => this.#logits(head, piece)),
      loss: this.#look({ head, loss }, pieces, sums),
      backward: this.#learn(graph.backward, { head, loss, sums }, pieces),
    }
  }

  #logits({ dims, operands: { x, y, weight, bias } }: ClassProduct, { first, count }: RowRun): ClassProduct {
    return {
      kernel: 'linear.forward',
      dims: { ...dims, out: count },
      operands: {
        x,
        y: this.#like(y, `${y.name} from ${first}`, dims.rows * count),
        weight: this.#rows(weight, first, count),
        ...this.#biasPart(bias, first, count),
      },
    }
  }

  #look({ head, loss }: FusedHead, pieces: readonly RowRun[], logSums: Tensor): Call[] {
    const { dims, operands } = loss
    const { target, correct } = operands
    const calls: Call[] = []
    let before: Tensor | undefined
    for (const piece of pieces) {
      const product = this.#logits(head, piece)
      const state: Tensor = this.#like(loss.operands.loss, 'classes so far', dims.rows * PIECE_STATE, 'activation')
      calls.push(product, {
        kernel: 'cross_entropy.look',
        dims: { ...dims, classes: piece.count, first: piece.first, all: dims.classes },
        operands: { logits: product.operands.y, target, state, ...(before ? { before } : {}) },
      })
      before = state
    }
    if (before === undefined) throw new Error('internal: a product without classes')
    return [
      ...calls,
      {
        kernel: 'cross_entropy.join',
        dims,
        operands: { state: before, target, loss: operands.loss, correct, logSums },
      },
    ]
  }

  /** In the place of the two gradients of the product: what each piece gives them, added up as it comes. */
  #learn(
    backward: readonly Call[],
    { head, loss, sums: logSums }: FusedHead & { readonly sums: Tensor },
    pieces: readonly RowRun[],
  ): Call[] {
    const ofHead = backward.flatMap((call) => (isOfHead(call, loss) ? [call] : []))
    const target = ofHead.find(isInputGradient)?.operands.dx
    let sum: Tensor | undefined
    const calls = pieces.flatMap((piece, i): Call[] => {
      const isLast = i === pieces.length - 1
      const dx =
        target && (sum === undefined && isLast ? target : this.#like(target, `${target.name} ${i}`, target.size))
      const made = this.#pieceGradients({ head, loss, logSums, ofHead, piece, dx })
      if (!target || !dx) return made
      const before = sum
      sum = dx
      if (before === undefined) return made
      sum = isLast ? target : this.#like(target, `${target.name} to ${i}`, target.size)
      return [...made, { kernel: 'add.forward', dims: { size: target.size }, operands: { a: before, b: dx, y: sum } }]
    })
    return [...calls, ...backward.filter((call) => !isOfHead(call, loss))]
  }

  #pieceGradients({ head, loss, logSums, ofHead, piece: { first, count }, dx }: PieceOfBackward): Call[] {
    const product = this.#logits(head, { first, count })
    const dy = this.#like(loss.operands.dx, `${loss.operands.dx.name} from ${first}`, loss.dims.rows * count)
    return [
      product,
      {
        kernel: 'cross_entropy.gradient',
        dims: { ...loss.dims, classes: count, first, all: loss.dims.classes },
        operands: { logits: product.operands.y, target: loss.operands.target, logSums, dx: dy },
      },
      ...ofHead.map((call): Call => {
        const dims = { ...call.dims, out: count }
        if (isInputGradient(call)) {
          const weight = this.#rows(call.operands.weight, first, count)
          return { ...call, dims, operands: { ...call.operands, weight, dy, dx: dx ?? call.operands.dx } }
        }
        const { x, dweight, dbias } = call.operands
        const own = { x, dy, dweight: this.#rows(dweight, first, count) }
        return { ...call, dims, operands: dbias ? { ...own, dbias: this.#rows(dbias, first, count) } : own }
      }),
    ]
  }

  #biasPart(bias: Tensor | undefined, first: number, count: number): { bias?: Tensor } {
    return bias ? { bias: this.#rows(bias, first, count) } : {}
  }

  /** Rows of a parameter, of its gradient, or of what is fixed. */
  #rows(tensor: Tensor, first: number, count: number): Tensor {
    const [all = 0, ...inner] = tensor.shape
    if (count === all) return tensor
    const columns = tensor.size / all
    const key = `${tensor.storage} ${first} ${count}`
    const storage = this.#storages.get(key) ?? this.#next()
    this.#storages.set(key, storage)
    const isFixed = tensor.role === 'fixed'
    return {
      ...tensor,
      id: storage,
      storage,
      name: `${tensor.name} from ${first}`,
      shape: [count, ...inner],
      size: count * columns,
      ...(isFixed ? { start: first * columns } : { offset: tensor.offset + first * columns }),
    }
  }

  /** Another value for each sample. */
  #like({ role }: Tensor, name: string, size: number, as = role): Tensor {
    const id = this.#next()
    return { id, role: as, name, shape: [size], size, shared: false, storage: id, offset: 0 }
  }
}

interface PieceOfBackward extends FusedHead {
  readonly logSums: Tensor
  readonly ofHead: readonly GradientOfHead[]
  readonly piece: RowRun
  /** what this piece gives the product's input, where that learns */
  readonly dx: Tensor | undefined
}

type ProductInputGradient = KernelCallOf<'linear.inputGradient', Tensor>
type GradientOfHead = ProductInputGradient | KernelCallOf<'linear.parameterGradient', Tensor>

function isOfHead(call: Call, { operands: { dx } }: Entropy): call is GradientOfHead {
  const isGradient = call.kernel === 'linear.parameterGradient' || call.kernel === 'linear.inputGradient'
  return isGradient && call.operands.dy.storage === dx.storage
}

function isInputGradient(call: Call): call is ProductInputGradient {
  return call.kernel === 'linear.inputGradient'
}

function isProductOf(call: Call, { operands }: ClassProduct): boolean {
  return call.kernel === 'linear.forward' && call.operands.y.storage === operands.y.storage
}

/** Each product of `logits`, with the names of the calls that make it: its own, and what unpacks its weights. */
export function logitsPieces({
  logits = [],
}: Pick<Graph, 'logits'>): { readonly y: Tensor; readonly calls: ReadonlySet<string> }[] {
  let first = 0
  return logits.flatMap((call, i) => {
    if (call.kernel !== 'linear.forward') return []
    const calls = new Set(Array.from({ length: i + 1 - first }, (_, at) => `logits.${first + at}`))
    first = i + 1
    return [{ y: call.operands.y, calls }]
  })
}

/** `columns`: of `into`; the values of some columns, of all rows */
export function placeColumns(
  into: Float32Array,
  columns: number,
  { first, count, values }: { readonly first: number; readonly count: number; readonly values: Float32Array },
): void {
  for (let row = 0; row * count < values.length; row++)
    into.set(values.subarray(row * count, (row + 1) * count), row * columns + first)
}
