// Products on matrix units, of which no machine needs any here: every text is shown to Dawn's front end, and plans are
// asked when they use them. What they compute: matrix-products.test.ts.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parseModelSpec } from '@starling-grid/model'
import {
  type AdapterTraits,
  candidatesFor,
  filesOf,
  KERNEL_URLS,
  MATRIX_TILES,
  passSource,
  type Pass,
} from '@starling-grid/shaders'
import { buildGraph, planGraph } from '@starling-grid/volunteer'
import { forceVariant, type Graph, hasMatrixUnits, MATRIX_FEATURE } from '@starling-grid/volunteer/testing'
import { create } from 'webgpu'
import { WITH_UNITS } from './matrix-plans.ts'
import { readText } from './places.ts'

const LIMITS = { maxStorageBufferBindingSize: 2 ** 27, maxBufferSize: 2 ** 28, maxStorageBuffersPerShaderStage: 8 }
const SAMPLES = 70

/** With epilogues in both directions, whole quads and not, whole slabs and not. */
const graphOf = (rows: number, input: number, hidden: number) =>
  buildGraph(
    parseModelSpec({
      input: [rows, input],
      layers: [
        { type: 'linear', name: 'a', out: hidden, bias: false },
        { type: 'tanh' },
        { type: 'residual', layers: [{ type: 'linear', name: 'b', out: hidden }] },
        { type: 'relu' },
        { type: 'linear', name: 'c', out: 2 * hidden },
      ],
      loss: 'mse',
    }),
  )
const GRAPHS = [graphOf(3, 128, 192), graphOf(1, 300, 301), graphOf(2, 67, 34)]

interface Planned {
  readonly traits?: AdapterTraits
  readonly precision?: 'f32' | 'f16'
  readonly name?: string
}

const planOf = (graph: Graph, { traits = WITH_UNITS, precision = 'f16', name }: Planned) =>
  planGraph(graph, {
    traits,
    limits: LIMITS,
    maxMicroBatch: SAMPLES,
    precision,
    ...(name === undefined ? {} : { choose: forceVariant({ family: 'matrix', name }, traits) }),
  })

const productsOf = ({ parts }: ReturnType<typeof planOf>) =>
  [...parts.forward, ...parts.backward].filter(({ pass }) => pass.entryPoint === 'product')

const [call] = graphOf(1, 128, 128).forward
assert.ok(call)
const TILES = candidatesFor(call, SAMPLES, WITH_UNITS).flatMap(({ family, name }) =>
  family === 'matrix' ? [name] : [],
)

test('the text of every tile in every direction is valid', async () => {
  const gpu = create(['backend=null', 'enable-dawn-features=allow_unsafe_apis'])
  const adapter = await gpu.requestAdapter()
  assert.ok(adapter)
  const device = await adapter.requestDevice({ requiredFeatures: [...WITH_UNITS.features] as GPUFeatureName[] })
  const texts = new Set<string>()
  for (const graph of GRAPHS)
    for (const name of TILES)
      for (const { pass } of [name, `${name} split`].flatMap((wanted) => productsOf(planOf(graph, { name: wanted }))))
        if (pass.matrixUnits) texts.add(await textOf(pass))
  assert.ok(texts.size >= 7 * TILES.length, `${texts.size} texts of ${TILES.length} tiles`)
  for (const text of texts) assert.deepEqual(await messagesOf(device, text), [])
  const [broken] = texts
  assert.notDeepEqual(await messagesOf(device, (broken ?? '').replaceAll('col_major', 'no_major')), [])
  device.destroy()
})

async function textOf(pass: Pass): Promise<string> {
  const files = await Promise.all(filesOf(pass).map((file) => readText(KERNEL_URLS[file])))
  return passSource(pass, files.join('\n'))
}

/** Warnings too: Dawn warns of what it will no longer take. */
async function messagesOf(device: GPUDevice, code: string): Promise<string[]> {
  device.pushErrorScope('validation')
  const { messages } = await device.createShaderModule({ code }).getCompilationInfo()
  await device.popErrorScope()
  return messages.map(({ lineNum, message }) => `${code.split('\n')[lineNum - 1]}: ${message}`)
}

const familiesOf = (planned: Planned, graph = GRAPHS[0] ?? assert.fail()) => [
  ...new Set(productsOf(planOf(graph, planned)).map(({ origin }) => origin.variant.split(' ')[0])),
]

test('a plan in f16 takes matrix units for all products and says so; one in f32 never does', () => {
  assert.deepEqual(familiesOf({}), ['matrix'])
  assert.deepEqual(familiesOf({ precision: 'f32' }), ['shared'])
  const { matrixUnits: _none, ...without } = WITH_UNITS
  assert.deepEqual(familiesOf({ traits: without }), ['shared'])
  const [first] = planOf(GRAPHS[0] ?? assert.fail(), {}).parts.forward
  assert.equal(first?.origin.why, 'first guess for GPUs with matrix units')
})

test('products of few columns stay with the tiles of f32', () => {
  const classes = buildGraph(parseModelSpec({ input: [64], layers: [{ type: 'linear', name: 'classes', out: 2 }] }))
  assert.deepEqual(familiesOf({}, classes), ['shared'])
})

test('a tile is given where its workgroup memory and its invocations fit', () => {
  const fitting = (traits: Partial<typeof WITH_UNITS>) =>
    candidatesFor(call, SAMPLES, { ...WITH_UNITS, ...traits }).filter(({ family }) => family === 'matrix').length
  assert.equal(fitting({}), MATRIX_TILES.length)
  assert.equal(fitting({ maxComputeWorkgroupStorageSize: 16_384 }), 2)
  assert.equal(fitting({ maxComputeInvocationsPerWorkgroup: 128 }), MATRIX_TILES.length - 1)
  assert.equal(fitting({ software: true }), 0)
})

test('every tile is shared out evenly: to its subgroups, and what its invocations bring', () => {
  for (const { m, n, slab, ownM, ownN, workgroup } of MATRIX_TILES) {
    assert.equal(workgroup, (32 * m * n) / (256 * ownM * ownN))
    for (const edge of [m, n]) assert.ok([2, 4, 8].includes((edge * slab) / 4 / workgroup), `${m}×${n}`)
  }
})

test('matrix units count where subgroups of 32 multiply 16 × 16 of f16 into f32, whatever else an adapter says', () => {
  const config = { componentType: 'f16', resultComponentType: 'f32', M: 16, N: 16, K: 16 }
  const claims = { features: WITH_UNITS.features, subgroupSize: 32, configs: [{ ...config, K: 8 }, config] }
  assert.ok(hasMatrixUnits(claims))
  for (const configs of [undefined, null, 7, 'f16', {}, [], [null, 3], [{ ...config, resultComponentType: 'f16' }]])
    assert.ok(!hasMatrixUnits({ ...claims, configs }), JSON.stringify(configs))
  assert.ok(!hasMatrixUnits({ ...claims, subgroupSize: 64 }))
  assert.ok(!hasMatrixUnits({ ...claims, subgroupSize: undefined }))
  assert.ok(!hasMatrixUnits({ ...claims, features: new Set([MATRIX_FEATURE]) }))
})
