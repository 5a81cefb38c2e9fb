// Makes the text of one pass's shader: constants, declarations and accessors of its bindings, then the kernel file.
// Arrays have a fixed size: their bounds checks then cost little (SwiftShader: 5.0 instead of 3.7 GFLOP/s in a matrix
// product).

import type {
  ArrayBinding,
  Binding,
  Constant,
  Epilogue,
  MatrixBinding,
  NamedPass,
  OptionalBinding,
  Pass,
} from './recipe.ts'
import { rewriteStorage, type StorageAccess } from './storage-access.ts'

/** WebGPU's limit of workgroups in one dimension; larger dispatches are folded into a second one. */
export const MAX_WORKGROUPS = 65_535

/** Elements that matrix accessors may touch past the end, without effect on results. */
const SLACK = 4
const BYTES_PER_ELEMENT = 4
const BYTES_PER_HALF = 2

/** Bytes that a buffer must have to be bound here: whole words. */
export function bindingBytes(binding: Binding): number {
  if (binding.half) return Math.ceil((boundElements(binding) * BYTES_PER_HALF) / BYTES_PER_ELEMENT) * BYTES_PER_ELEMENT
  return boundElements(binding) * BYTES_PER_ELEMENT
}

function boundElements(binding: Binding): number {
  if (binding.kind === 'matrix') return Math.ceil((binding.rows * binding.columns) / 4) * 4 + SLACK
  if (binding.kind === 'array' && isGrouped(binding.element)) return Math.ceil(binding.length / 4) * 4
  return binding.length
}

function isGrouped(element: ArrayBinding['element']): boolean {
  return element === 'vec4f' || element === 'vec4u'
}

/** Bindings that take a resource, in the order of their numbers; number 0 is the uniform `run`. */
export function boundBindings({ bindings }: NamedPass): Binding[] {
  return bindings.filter((binding) => binding.kind !== 'optional' || binding.present)
}

/** Workgroups in x and y for this many invocations. */
export function workgroupGrid(threads: number, workgroup: number): { x: number; y: number } {
  const groups = Math.ceil(threads / workgroup)
  return { x: Math.min(groups, MAX_WORKGROUPS), y: Math.ceil(groups / MAX_WORKGROUPS) }
}

/** One of `count` shares of a pass's workgroups. */
export interface GroupShare {
  readonly index: number
  readonly count: number
}

/**
 * The share's workgroups: where they begin (`run.first`), and the grid of a dispatch. A grid that is folded computes
 * whole rows, so that no workgroup belongs to two shares; x is 0 where nothing is left for the share.
 */
export function workgroupShare(
  threads: number,
  workgroup: number,
  { index, count }: GroupShare,
): { first: number; x: number; y: number } {
  const groups = Math.ceil(threads / workgroup)
  const even = Math.ceil(groups / count)
  const size = even > MAX_WORKGROUPS ? Math.ceil(even / MAX_WORKGROUPS) * MAX_WORKGROUPS : even
  const first = Math.min(index * size, groups)
  return { first, ...workgroupGrid(Math.min(size, groups - first), 1) }
}

export interface SourceOptions {
  /** the scalars of a run come as WGSL immediates instead of a uniform buffer */
  readonly immediates?: boolean
}

/** `fileText`: the texts of the pass's files (filesOf), one after the other. */
export function passSource(pass: Pass, fileText: string, { immediates = false }: SourceOptions = {}): string {
  const numbers = new Map(boundBindings(pass).map((binding, index) => [binding.name, index + 1]))
  const bindings = pass.bindings.map((binding) => declaration(binding, numbers.get(binding.name))).join('\n')
  const kernel = reachable(fileText, [pass.entryPoint, ...bindings.matchAll(/\w+/g)].map(String))
  return [
    ...(pass.matrixUnits || pass.bindings.some(({ half }) => half) ? ['enable f16;'] : []),
    ...(pass.matrixUnits || pass.subgroups ? ['enable subgroups;'] : []),
    ...(pass.matrixUnits ? ['enable chromium_experimental_subgroup_matrix;'] : []),
    ...Object.entries({ ...pass.constants, WORKGROUP: pass.workgroup }).map(
      ([name, value]) => `const ${name} = ${constantText(value)};`,
    ),
    `struct Run { samples: u32, loss_scale: f32, adds: u32, first: u32 }`,
    immediates ? 'var<immediate> run: Run;' : '@group(0) @binding(0) var<uniform> run: Run;',
    THREADS,
    rewriteStorage(`${bindings}\n${kernel}`, storageAccesses(pass)),
  ].join('\n')
}

/** The bindings that are not plain f32. */
function storageAccesses(pass: Pass): Map<string, StorageAccess> {
  return new Map(
    boundBindings(pass).flatMap((binding) => {
      const { name, half = false, scaled = false } = binding
      return half || scaled ? [[name, { half, scaled, grouped: elementOf(binding) === 'vec4f' }] as const] : []
    }),
  )
}

function constantText(value: Constant): string {
  return typeof value === 'number' ? `${value}u` : `${value.f32}f`
}

const COMMENT = /\/\/.*$/gm
/** Where a declaration of a kernel file begins: at the start of a line; an entry point with its attribute. */
const DECLARATION_START = /\n(?=@compute|struct |const |var<workgroup> |(?<!@compute.*\n)fn )/
const DECLARED_NAME = /\b(?:fn|struct|const|var<workgroup>) (\w+)/

/** What is named, with all that it calls: the file's other entry points name bindings that this pass does not have. */
function reachable(fileText: string, names: readonly string[]): string {
  const declarations = new Map<string, string>()
  for (const text of fileText.replace(COMMENT, '').split(DECLARATION_START)) {
    const name = DECLARED_NAME.exec(text)?.[1]
    if (name !== undefined) declarations.set(name, text)
  }
  const needed = new Set(names)
  for (const name of needed)
    // a set visits what is added during the loop
    for (const [word] of (declarations.get(name) ?? '').matchAll(/\w+/g)) if (declarations.has(word)) needed.add(word)
  return [...declarations].flatMap(([name, text]) => (needed.has(name) ? [text.trim()] : [])).join('\n')
}

/**
 * `turns`: a loop over a constant that a compiler must not unroll. lavapipe does up to 32 turns, and then compiles for
 * seconds; Intel's compiler loads ahead for all of them, and spills.
 */
const THREADS = `fn group_of(group: vec3u) -> u32 { return run.first + group.y * ${MAX_WORKGROUPS}u + group.x; }
fn thread_of(group: vec3u, lane: u32) -> u32 { return group_of(group) * WORKGROUP + lane; }
fn turns(count: u32) -> u32 { return select(count, 0u, run.samples == 0u); }`

function declaration(binding: Binding, number: number | undefined): string {
  switch (binding.kind) {
    case 'matrix':
      return matrixText(binding, variable(binding, number))
    case 'array':
      return variable(binding, number)
    case 'optional':
      return optionalText(binding, number)
    default:
      return binding satisfies never
  }
}

function variable(binding: Binding, number: number | undefined): string {
  const access = binding.access === 'read' ? 'read' : 'read_write'
  const element = elementOf(binding)
  const length = isGrouped(element) ? boundElements(binding) / 4 : boundElements(binding)
  return (
    `@group(0) @binding(${number ?? 'absent'}) var<storage, ${access}> ${binding.name}: ` +
    `array<${binding.half ? halfOf(element) : element}, ${length}>;`
  )
}

function elementOf(binding: Binding): ArrayBinding['element'] {
  if (binding.kind === 'array') return binding.element
  return binding.kind === 'matrix' && binding.columns % 4 === 0 ? 'vec4f' : 'f32'
}

function halfOf(element: ArrayBinding['element']): string {
  if (element === 'f32') return 'f16'
  if (element === 'vec4f') return 'vec4h'
  throw new Error(`internal: ${element} has no half`)
}

/**
 * For a matrix `x`:
 *   x_stride            array elements from one row to the next
 *   x_rows(first, last) starts of four rows, none past `last`
 *   x_quad(start, c)    columns c … c+3 of the row that starts there
 *   x_block(rows, c)    the same of four rows, each a column of the mat4x4f
 *   x_kept(r, c, v)     what is there, after x_put(r, c, v)
 *   x_put_block(r, end, c, block), x_add_block(…)   writes or adds four rows from r, those below `end` only
 */
function matrixText(
  { name, access, columns, finish, half = false, begins = false }: MatrixBinding,
  variableText: string,
): string {
  const aligned = columns % 4 === 0
  const lines = [
    variableText,
    `const ${name}_stride = ${aligned ? columns / 4 : columns}u;`,
    `fn ${name}_rows(first: u32, last: u32) -> vec4u { return min(vec4u(first, first + 1u, first + 2u, ` +
      `first + 3u), vec4u(last)) * ${name}_stride; }`,
    aligned ? alignedQuad(name) : raggedQuad(name, columns),
    `fn ${name}_block(rows: vec4u, c: u32) -> mat4x4f { return ` +
      `mat4x4f(${['x', 'y', 'z', 'w'].map((i) => `${name}_quad(rows.${i}, c)`).join(', ')}); }`,
  ]
  if (access !== 'read')
    lines.push(
      keeper(name, half),
      ...finisher(name, finish),
      aligned ? alignedPut(name, columns) : raggedPut(name, columns),
      ...adder(name, begins),
      ...blockWriters(name),
    )
  return lines.join('\n')
}

function alignedQuad(name: string): string {
  return `fn ${name}_quad(start: u32, c: u32) -> vec4f { return ${name}[start + c / 4u]; }`
}

function raggedQuad(name: string, columns: number): string {
  const elements = [0, 1, 2, 3].map((i) => `${name}[start + min(c + ${i}u, ${columns - 1}u)]`).join(', ')
  return `fn ${name}_quad(start: u32, c: u32) -> vec4f {
  return select(vec4f(), vec4f(${elements}), vec4u(c, c + 1u, c + 2u, c + 3u) < vec4u(${columns}u));
}`
}

function alignedPut(name: string, columns: number): string {
  return (
    `fn ${name}_put(r: u32, c: u32, v: vec4f) { if (c < ${columns}u) ` +
    `{ ${name}[r * ${name}_stride + c / 4u] = ${name}_finish(r, c, v); } }`
  )
}

function raggedPut(name: string, columns: number): string {
  const lines = [0, 1, 2, 3].map(
    (i) => `  if (c + ${i}u < ${columns}u) { ${name}[r * ${name}_stride + c + ${i}u] = w[${i}]; }`,
  )
  return `fn ${name}_put(r: u32, c: u32, v: vec4f) {\n  let w = ${name}_finish(r, c, v);\n${lines.join('\n')}\n}`
}

/** The activations' functions are in kernels/activations.wgsl. */
function finisher(name: string, finish: Epilogue | undefined): string[] {
  if (finish?.derivative)
    return [
      `fn ${name}_finish(r: u32, c: u32, v: vec4f) -> vec4f { return ${finish.derivative}_back(v, ` +
        'activated_quad(r * activated_stride, c)); }',
    ]
  const sum = finish?.residual ? 'v + residual_quad(r * residual_stride, c)' : 'v'
  const keep = finish?.preactivation ? 'preactivation_put(r, c, sum); ' : ''
  // At the value that its derivative will read.
  const seen = finish?.preactivation ? 'preactivation_kept(r, c, sum)' : 'sum'
  const value = finish?.activation ? `${finish.activation}_of(${seen})` : 'sum'
  return [`fn ${name}_finish(r: u32, c: u32, v: vec4f) -> vec4f { let sum = ${sum}; ${keep}return ${value}; }`]
}

/** Read back where it was rounded: compilers leave a rounding out that is only written down. */
function keeper(name: string, half: boolean): string {
  const kept = half ? `${name}_quad(r * ${name}_stride, c)` : 'v'
  return `fn ${name}_kept(r: u32, c: u32, v: vec4f) -> vec4f { return ${kept}; }`
}

/** What was cleared and what is not read are zeros alike, and the sum of both with `v` has the same bits. */
function adder(name: string, begins: boolean): string[] {
  const skip = begins ? 'if (run.adds == 0u) { return vec4f(); } ' : ''
  return [
    `fn ${name}_before(r: u32, c: u32) -> vec4f { ${skip}return ${name}_quad(r * ${name}_stride, c); }`,
    `fn ${name}_add(r: u32, c: u32, v: vec4f) { ${name}_put(r, c, ${name}_before(r, c) + v); }`,
  ]
}

function blockWriters(name: string): string[] {
  const each = (write: string) =>
    [0, 1, 2, 3].map((i) => `  if (r + ${i}u < end) { ${name}_${write}(r + ${i}u, c, block[${i}]); }`).join('\n')
  return ['put', 'add'].map(
    (write) => `fn ${name}_${write}_block(r: u32, end: u32, c: u32, block: mat4x4f) {\n${each(write)}\n}`,
  )
}

function optionalText(binding: OptionalBinding, number: number | undefined): string {
  const { name, length, present, access } = binding
  if (access === 'read') {
    const value = present ? `${name}[min(i, ${length - 1}u)]` : '0.0'
    return `${present ? variable(binding, number) : ''}\nfn ${name}_at(i: u32) -> f32 { return ${value}; }`
  }
  const statement = present ? `if (i < ${length}u) { ${name}[i] += v; }` : ''
  return `${present ? variable(binding, number) : ''}\nfn ${name}_add(i: u32, v: f32) { ${statement} }`
}
