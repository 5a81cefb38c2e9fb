// The engine on devices that behave as browsers and drivers do that no test machine has: the executor suite on each,
// planned as for a GPU where that is what they are.
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { after, test } from 'node:test'
import { initialParameters, type ModelSpec, parameterCount } from '@starling-grid/model'
import { type Clock, systemClock } from '@starling-grid/protocol'
import {
  buildGraph,
  createGpuExecutor,
  type Executor,
  planGraph,
  renewedExecutor,
  traitsOf,
} from '@starling-grid/volunteer'
import {
  AWKWARD_MODEL,
  awkwardBatch,
  executorCases,
  expectClose,
  inSubmits,
  SubmitPace,
} from '@starling-grid/volunteer/testing'
import { openGpu } from '../src/gpu.ts'
import { adapterEnvironment } from '../src/runtime/adapter-environment.ts'
import { crampedDevice, FAKE_DEVICES, watchedDevice } from './fake-devices.ts'

const { description } = await adapterEnvironment()
const skip = description.startsWith('none') && `no adapter: ${description}`
const gpu = skip ? undefined : await openGpu()
after(() => gpu?.close())

const SAMPLES = 6

const readText = (url: URL) => readFile(url, 'utf8')

function theGpu() {
  assert.ok(gpu)
  return gpu
}

for (const { name: fake, wrap } of FAKE_DEVICES)
  for (const { name, run } of executorCases)
    test(`${fake}: ${name}`, { skip }, () => {
      const device = wrap(theGpu().device)
      return run((spec, options = {}) =>
        createGpuExecutor({ device, adapter: theGpu().description, spec, readText, ...options }),
      )
    })

test('every limit at the default of WebGPU, planned as for a GPU: the suite', { skip }, async (t) => {
  const plain = await openGpu({ limits: 'default' })
  t.after(() => plain.close())
  const { device, description: adapter } = plain
  assert.equal(device.limits.maxStorageBuffersPerShaderStage, 8)
  for (const { run } of executorCases)
    await run((spec, options = {}) => createGpuExecutor({ device, adapter, spec, readText, asGpu: true, ...options }))
})

async function gradientOn(executor: Executor, spec: ModelSpec): Promise<Float32Array> {
  const into = new Float32Array(parameterCount(spec))
  executor.loadParameters(initialParameters(spec, 1))
  await executor.gradient(awkwardBatch(SAMPLES), into)
  return into
}

async function honestGradient(): Promise<Float32Array> {
  const { device, description: adapter } = theGpu()
  const executor = await createGpuExecutor({ device, adapter, spec: AWKWARD_MODEL, readText })
  const gradient = await gradientOn(executor, AWKWARD_MODEL)
  executor.destroy()
  return gradient
}

const HASTY: Clock = { ...systemClock, sleep: async () => undefined }

/** Of a driver that stands a quarter of a run in one submit, and what it takes to submit a run at once. */
function patience(): { readonly mostWorkgroups: number; readonly wholeMs: number } {
  const { device } = theGpu()
  const traits = traitsOf(device, false)
  const { parts, capacity } = planGraph(buildGraph(AWKWARD_MODEL), {
    traits,
    limits: device.limits,
    maxMicroBatch: 512,
  })
  const passes = [...parts.forward, ...parts.loss, ...parts.backward]
  const work = passes.reduce((sum, pass) => sum + pass.work, 0)
  const workgroups = (piece: typeof passes): number =>
    piece.reduce((sum, { pass }) => sum + Math.ceil(pass.threads(SAMPLES) / pass.workgroup), 0)
  const mostWorkgroups = Math.max(...inSubmits(passes, work / 4).map(workgroups))
  assert.ok(workgroups(passes) > mostWorkgroups && capacity >= SAMPLES)
  return { mostWorkgroups, wholeMs: work / new SubmitPace().workIn(1) }
}

test(
  'a driver that resets on long submits gets shorter ones until it lives, and the gradient is right',
  { skip },
  async () => {
    const { mostWorkgroups, wholeMs } = patience()
    const said: string[] = []
    const opened: { close(): void }[] = []
    const executor = await renewedExecutor(
      async (trouble) => {
        const { device, description: adapter, close } = await openGpu()
        opened.push({ close })
        return createGpuExecutor({
          device: watchedDevice(device, mostWorkgroups),
          adapter,
          spec: AWKWARD_MODEL,
          readText,
          asGpu: true,
          trouble,
          submitMs: () => wholeMs,
        })
      },
      { say: (text) => said.push(text), clock: HASTY },
    )
    expectClose(await gradientOn(executor, AWKWARD_MODEL), await honestGradient(), 1e-5, 'gradient')
    assert.ok(opened.length > 1 && opened.length <= 4, `${opened.length} devices: ${said.join(' ')}`)
    executor.destroy()
    for (const { close } of opened) close()
  },
)

test('a device that has no memory for staging gets a smaller plan, and the gradient is right', { skip }, async () => {
  const { device, description: adapter } = theGpu()
  const said: string[] = []
  for (const buffers of [3, 5, 6]) {
    const cramped = crampedDevice(device, { buffers, times: 2 })
    const executor = await createGpuExecutor({
      device: cramped,
      adapter,
      spec: AWKWARD_MODEL,
      readText,
      maxMicroBatch: 6,
      say: (text) => said.push(text),
    })
    expectClose(await gradientOn(executor, AWKWARD_MODEL), await honestGradient(), 1e-5, 'gradient')
    executor.destroy()
  }
  assert.match(said.join(), /no memory for 6 samples/)
})
