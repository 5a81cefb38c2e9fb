// Products on matrix units, where no machine of the tests has them: every text is one that Dawn's front end takes, and
// a plan uses them only where it may. What they compute is compared in gpu-half.test.ts, on whatever adapter is there.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parseModelSpec } from '@starling-grid/model'
import { candidatesFor, filesOf, KERNEL_URLS, PLAIN_TRAITS, passSource, type Pass } from '@starling-grid/shaders'
import { buildGraph, planGraph } from '@starling-grid/volunteer'
import { forceVariant, type Graph, MATRIX_FEATURE } from '@starling-grid/volunteer/testing'
import { create } from 'webgpu'
import { readText } from './places.ts'

const WITH_UNITS = {
  ...PLAIN_TRAITS,
  software: false,
  features: new Set(['shader-f16', 'subgroups', MATRIX_FEATURE]),
  maxComputeWorkgroupStorageSize: 49_152,
  matrixUnits: true,
}
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
  readonly traits?: typeof PLAIN_TRAITS
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
const TILES = candidatesFor(call, SAMPLES, WITH_UNITS).flatMap(({ family, name }) => (family === 'matrix' ? [name] : []))

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
