// A trained model as ONNX: its operators in the order of computation, in those of opset 20. The input is a batch of
// prepared samples (N, …input shape), the output what the model answers: for cross_entropy logits. The signature in the
// metadata says how samples are prepared. Every operator has a row: the compiler finds a missing one.
import {
  constantValues,
  type FixedEntry,
  fixedEntries,
  layerShapes,
  type ModelFile,
  type OperatorLayer,
  type ParameterEntry,
  parameterLayout,
  type PlacedLayer,
  takesTokens,
} from '@starling-grid/model'
import { GridError } from '@starling-grid/protocol'
import { bytesOf } from '@starling-grid/volunteer'
import { ATTRIBUTE, encodeModel, TENSOR } from './onnx-schema.ts'

const IR_VERSION = 9
export const OPSET = 20
const INPUT = 'input'
const OUTPUT = 'output'
/** What masks a score: exp of it is 0 in f32. */
const MASKED = -1e30

type Attribute = number | string | readonly number[] | { readonly float: number }

/** The graph that is being built. */
class OnnxGraph {
  readonly nodes: object[] = []
  readonly initializers: object[] = []
  readonly #known = new Map<string, string>()
  #values = 0

  /** Adds an operator; the name of its output. */
  op(opType: string, inputs: readonly string[], attributes: Readonly<Record<string, Attribute>> = {}): string {
    const [output = ''] = this.ops(opType, inputs, { attributes, outputs: 1 })
    return output
  }

  ops(
    opType: string,
    inputs: readonly string[],
    { attributes, outputs }: { readonly attributes: Readonly<Record<string, Attribute>>; readonly outputs: number },
  ): string[] {
    const names = Array.from({ length: outputs }, () => `/v${++this.#values}`)
    const attribute = Object.entries(attributes).map(([name, value]) => attributeOf(name, value))
    this.nodes.push({ input: inputs, output: names, name: `${opType}_${this.nodes.length}`, opType, attribute })
    return names
  }

  int64(...values: readonly number[]): string {
    const rawData = new Uint8Array(new BigInt64Array(values.map(BigInt)).buffer)
    return this.once(`int64 ${values.join()}`, () => this.#constant([values.length], TENSOR.int64, rawData))
  }

  /** of no dimension */
  scalar(value: number): string {
    const rawData = new Uint8Array(BigInt64Array.of(BigInt(value)).buffer)
    return this.once(`scalar ${value}`, () => this.#constant([], TENSOR.int64, rawData))
  }

  float(...values: readonly number[]): string {
    const rawData = bytesOf(Float32Array.from(values))
    return this.once(`float ${values.join()}`, () => this.#constant([values.length], TENSOR.float, rawData))
  }

  parameter({ name, shape }: Pick<ParameterEntry, 'name' | 'shape'>, values: Float32Array): void {
    this.initializers.push({
      name: parameterName(name),
      dims: shape,
      dataType: TENSOR.float,
      rawData: bytesOf(values),
    })
  }

  /** What `make` adds is added once for all that ask by this key. */
  once(key: string, make: () => string): string {
    const name = this.#known.get(key) ?? make()
    this.#known.set(key, name)
    return name
  }

  #constant(dims: readonly number[], dataType: number, rawData: Uint8Array): string {
    const name = `/constant_${this.initializers.length}`
    this.initializers.push({ name, dims, dataType, rawData })
    return name
  }
}

/** Parameters keep the names of the safetensors file, but for two that the graph itself has. */
function parameterName(name: string): string {
  return name === INPUT || name === OUTPUT ? `/${name}` : name
}

function attributeOf(name: string, value: Attribute): object {
  if (typeof value === 'string') return { name, type: ATTRIBUTE.string, s: new TextEncoder().encode(value) }
  if (typeof value === 'number') return { name, type: ATTRIBUTE.int, i: value }
  if ('float' in value) return { name, type: ATTRIBUTE.float, f: value.float }
  return { name, type: ATTRIBUTE.ints, ints: value }
}

type OnnxRotary = Extract<OperatorLayer, { readonly type: 'rotary' }>

interface RowParts<L> {
  readonly graph: OnnxGraph
  readonly layer: L
  /** values of the layer's inputs */
  readonly x: readonly [string, ...string[]]
  /** role of a parameter → its name; undefined where the layer has none */
  readonly p: (role: string) => string | undefined
  readonly placed: PlacedLayer
}
type OnnxRow<T extends OperatorLayer['type']> = (
  parts: RowParts<Extract<OperatorLayer, { readonly type: T }>>,
) => string

const needed = (name: string | undefined): string => name ?? ''
const without = (names: readonly (string | undefined)[]): string[] => names.filter((name) => name !== undefined)
const plain =
  (opType: string): OnnxRow<'relu'> =>
  ({ graph, x }) =>
    graph.op(opType, [x[0]])

const window = ({ kernel, stride, padding }: { kernel: number; stride: number; padding: number }) => ({
  kernel_shape: [kernel, kernel],
  strides: [stride, stride],
  pads: [padding, padding, padding, padding],
})

/** Operator of a model → its nodes; the name of their output. */
const ROWS: { readonly [T in OperatorLayer['type']]: OnnxRow<T> } = {
  linear({ graph, x, p }) {
    const turned = graph.op('Transpose', [needed(p('weight'))], { perm: [1, 0] })
    const product = graph.op('MatMul', [x[0], turned])
    const bias = p('bias')
    return bias === undefined ? product : graph.op('Add', [product, bias])
  },
  conv2d: ({ graph, layer, x, p }) =>
    graph.op('Conv', without([x[0], p('weight'), p('bias')]), { ...window(layer), group: layer.groups }),
  maxpool2d: ({ graph, layer, x }) => graph.op('MaxPool', [x[0]], window(layer)),
  avgpool2d: ({ graph, layer, x }) => graph.op('AveragePool', [x[0]], { ...window(layer), count_include_pad: 1 }),
  globalavgpool: ({ graph, x, placed }) =>
    graph.op('ReduceMean', [x[0], placed.x.length === 2 ? graph.int64(2) : graph.int64(2, 3)], { keepdims: 0 }),
  transpose({ graph, x, placed }) {
    const lines = graph.op('Reshape', [x[0], graph.int64(0, placed.x[0] ?? 1, -1)])
    return graph.op('Transpose', [lines], { perm: [0, 2, 1] })
  },
  class_token({ graph, x, p }) {
    const token = graph.op('Reshape', [needed(p('weight')), graph.int64(1, 1, -1)])
    const first = graph.op('Slice', [x[0], graph.int64(0), graph.int64(1), graph.int64(1)])
    return graph.op('Concat', [graph.op('Expand', [token, graph.op('Shape', [first])]), x[0]], { axis: 1 })
  },
  first_token: ({ graph, x }) => graph.op('Gather', [x[0], graph.scalar(0)], { axis: 1 }),
  upsample: ({ graph, layer: { scale }, x }) =>
    graph.op('Resize', [x[0], '', graph.float(1, 1, scale, scale)], {
      mode: 'nearest',
      coordinate_transformation_mode: 'asymmetric',
      nearest_mode: 'floor',
    }),
  relu: plain('Relu'),
  gelu: ({ graph, x }) => graph.op('Gelu', [x[0]]),
  gelu_tanh: ({ graph, x }) => graph.op('Gelu', [x[0]], { approximate: 'tanh' }),
  silu: ({ graph, x }) => graph.op('Mul', [x[0], graph.op('Sigmoid', [x[0]])]),
  tanh: ({ graph, x }) => graph.op('Tanh', [x[0]]),
  sigmoid: ({ graph, x }) => graph.op('Sigmoid', [x[0]]),
  softmax: ({ graph, x }) => graph.op('Softmax', [x[0]], { axis: -1 }),
  leaky_relu: ({ graph, layer, x }) => graph.op('LeakyRelu', [x[0]], { alpha: { float: layer.negative_slope } }),
  dropout: ({ graph, x }) => graph.op('Identity', [x[0]]),
  batchnorm2d: ({ graph, layer, x, p }) =>
    graph.op('BatchNormalization', without([x[0], p('weight'), p('bias'), p('runningMean'), p('runningVariance')]), {
      epsilon: { float: layer.eps },
    }),
  layernorm: ({ graph, layer, x, p }) =>
    graph.op('LayerNormalization', without([x[0], p('weight'), p('bias')]), {
      axis: -1,
      epsilon: { float: layer.eps },
    }),
  rmsnorm({ graph, layer, x: [whole], p, placed }) {
    const runs =
      layer.size === undefined ? whole : graph.op('Reshape', [whole, graph.int64(...inRuns(placed.x, layer.size))])
    const squares = graph.op('ReduceMean', [graph.op('Mul', [runs, runs]), graph.int64(-1)], { keepdims: 1 })
    const root = graph.op('Sqrt', [graph.op('Add', [squares, graph.float(layer.eps)])])
    const normal = graph.op('Mul', [graph.op('Div', [runs, root]), needed(p('weight'))])
    return layer.size === undefined ? normal : graph.op('Reshape', [normal, graph.int64(0, ...placed.y)])
  },
  groupnorm({ graph, layer, x, p, placed }) {
    const [channels = 1, height = 1, width = 1] = placed.x
    const { groups } = layer
    const ones = graph.float(...new Float32Array(groups).fill(1))
    const zeros = graph.float(...new Float32Array(groups))
    const grouped = graph.op('Reshape', [x[0], graph.int64(0, groups, -1)])
    const normal = graph.op('InstanceNormalization', [grouped, ones, zeros], { epsilon: { float: layer.eps } })
    const back = graph.op('Reshape', [normal, graph.int64(0, channels, height, width)])
    const perChannel = graph.int64(channels, 1, 1)
    const scale = graph.op('Reshape', [needed(p('weight')), perChannel])
    const shift = graph.op('Reshape', [needed(p('bias')), perChannel])
    return graph.op('Add', [graph.op('Mul', [back, scale]), shift])
  },
  flatten: ({ graph, x }) => graph.op('Flatten', [x[0]], { axis: 1 }),
  embedding: ({ graph, x, p }) => graph.op('Gather', [needed(p('weight')), x[0]], { axis: 0 }),
  positions({ graph, x, p, placed }) {
    const [length = 1] = placed.x
    const bounds = [graph.int64(0), graph.int64(length), graph.int64(-2)]
    return graph.op('Add', [x[0], graph.op('Slice', [needed(p('weight')), ...bounds])])
  },
  rotary,
  swiglu: ({ graph, x: [gate, value = ''] }) =>
    graph.op('Mul', [graph.op('Mul', [gate, graph.op('Sigmoid', [gate])]), value]),
  scale: ({ graph, layer, x }) => graph.op('Mul', [x[0], graph.float(layer.factor)]),
  attention: ({ graph, layer, x, placed }) => attention(graph, x[0], layer, placed.x),
  add: ({ graph, x: [first, ...others] }) => others.reduce((sum, other) => graph.op('Add', [sum, other]), first),
  concat: ({ graph, x }) => graph.op('Concat', x, { axis: 1 }),
}

/** The dimensions of a batch whose last one is cut into runs. */
function inRuns(shape: readonly number[], size: number): number[] {
  return [0, ...shape.slice(0, -1), (shape.at(-1) ?? size) / size, size]
}

/** Queries, keys and values (N, T, own · D), the first two turned by position → (N, T, 3 · heads · D) */
function rotary({ graph, layer, x, p, placed }: RowParts<OnnxRotary>): string {
  const [length = 1, channels = 1] = placed.x
  const size = channels / layer.heads
  const parts = x.map((part, i) => {
    const own = i === 0 ? layer.heads : layer.kv_heads
    const heads = graph.op('Reshape', [part, graph.int64(0, length, own, size)])
    const turned = i === 2 ? heads : turnedHeads(graph, heads, { angles: needed(p('angles')), length, size })
    const apart = graph.op('Reshape', [turned, graph.int64(0, length, own, 1, size)])
    const shared = graph.op('Expand', [apart, graph.int64(1, length, own, layer.heads / own, size)])
    return graph.op('Reshape', [shared, graph.int64(0, length, channels)])
  })
  return graph.op('Concat', parts, { axis: -1 })
}

// (a, b) → (a · cos − b · sin, b · cos + a · sin) with a, b the halves of each head (N, T, heads, D)
function turnedHeads(
  graph: OnnxGraph,
  heads: string,
  { angles, length, size }: { readonly angles: string; readonly length: number; readonly size: number },
): string {
  const halves = { attributes: { axis: -1, num_outputs: 2 }, outputs: 2 }
  const table = graph.op('Reshape', [angles, graph.int64(1, length, 1, size)])
  const [cosine = '', sine = ''] = graph.ops('Split', [table], halves)
  const [a = '', b = ''] = graph.ops('Split', [heads], halves)
  const product = (of: string, by: string): string => graph.op('Mul', [of, by])
  const first = graph.op('Sub', [product(a, cosine), product(b, sine)])
  const second = graph.op('Add', [product(b, cosine), product(a, sine)])
  return graph.op('Concat', [first, second], { axis: -1 })
}

/** x (N, T, 3 · channels): queries, keys and values side by side, each split into heads → (N, T, channels) */
function attention(
  graph: OnnxGraph,
  x: string,
  { heads, causal }: { readonly heads: number; readonly causal: boolean },
  [length = 1, wide = 3]: readonly number[],
): string {
  const channels = wide / 3
  const thirds = graph.ops('Split', [x], { attributes: { axis: -1, num_outputs: 3 }, outputs: 3 })
  const split = graph.int64(0, length, heads, channels / heads)
  const [q = '', k = '', v = ''] = thirds.map((part, i) =>
    graph.op('Transpose', [graph.op('Reshape', [part, split])], { perm: i === 1 ? [0, 2, 3, 1] : [0, 2, 1, 3] }),
  )
  const scale = graph.float(1 / Math.sqrt(channels / heads))
  const scores = graph.op('Mul', [graph.op('MatMul', [q, k]), scale])
  const masked = causal ? graph.op('Add', [scores, future(graph, length)]) : scores
  const mixed = graph.op('MatMul', [graph.op('Softmax', [masked], { axis: -1 }), v])
  const together = graph.op('Transpose', [mixed], { perm: [0, 2, 1, 3] })
  return graph.op('Reshape', [together, graph.int64(0, length, channels)])
}

/** (T, T): what masks the scores of later positions; the same value for all layers */
function future(graph: OnnxGraph, length: number): string {
  return graph.once(`future ${length}`, () => {
    const masked = graph.op('Expand', [graph.float(MASKED), graph.int64(length, length)])
    return graph.op('Trilu', [masked, graph.scalar(1)], { upper: 1 })
  })
}

/** @example await writeFile('model.onnx', onnxModel(readModelFile(bytes))) */
export function onnxModel(model: ModelFile): Uint8Array {
  const { spec, parameters } = model
  const graph = new OnnxGraph()
  for (const entry of parameterLayout(spec).entries)
    graph.parameter(entry, parameters.subarray(entry.offset, entry.offset + entry.length))
  for (const entry of fixedEntries(spec)) graph.parameter(entry, fixedValues(entry))
  const placed = layerShapes(spec)
  const values = [INPUT]
  for (const layer of placed) values.push(outputOf(graph, layer, values))
  graph.nodes.push({ input: [values.at(-1)], output: [OUTPUT], name: OUTPUT, opType: 'Identity', attribute: [] })
  return encodeModel({
    irVersion: IR_VERSION,
    producerName: 'starling',
    opsetImport: [{ domain: '', version: OPSET }],
    metadataProps: metadataOf(model),
    graph: {
      name: spec.name,
      node: graph.nodes,
      initializer: graph.initializers,
      input: [valueOf(INPUT, takesTokens(spec) ? TENSOR.int64 : TENSOR.float, spec.input)],
      output: [valueOf(OUTPUT, TENSOR.float, placed.at(-1)?.y ?? spec.input)],
    },
  })
}

/** @throws GridError 'unsupported': adapters beside parameters of another file make no model by themselves */
function fixedValues(entry: FixedEntry): Float32Array<ArrayBuffer> {
  if (entry.kind === 'constant') return constantValues(entry)
  throw new GridError(
    'unsupported',
    `expected a whole model, got adapters without ${entry.name}; merge them first: starling job export ID --merged`,
  )
}

function outputOf(graph: OnnxGraph, placed: PlacedLayer, values: readonly string[]): string {
  const names = new Map(placed.parameters.map(({ role, name }) => [role, parameterName(name)]))
  // The table pairs each type with its own row, which the compiler cannot follow through a union.
  const row = ROWS[placed.layer.type] as OnnxRow<OperatorLayer['type']>
  const [first = '', ...others] = placed.inputs.map((value) => values[value] ?? '')
  return row({ graph, layer: placed.layer, x: [first, ...others], p: (role) => names.get(role), placed })
}

function metadataOf({ spec, signature, vocabulary, tokenizer }: ModelFile): object[] {
  const entries = { signature: JSON.stringify(signature), loss: spec.loss, vocabulary, tokenizer }
  return Object.entries(entries).flatMap(([key, value]) => (value === undefined ? [] : [{ key, value }]))
}

/** A batch of any size. */
function valueOf(name: string, elemType: number, shape: readonly number[]): object {
  const dim = [{ dimParam: 'N' }, ...shape.map((dimValue) => ({ dimValue }))]
  return { name, type: { tensorType: { elemType, shape: { dim } } } }
}
