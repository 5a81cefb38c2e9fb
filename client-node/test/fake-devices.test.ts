// The engine on devices that behave as browsers and drivers do that no test machine has: the executor suite on each,
// planned as for a GPU where that is what they are.
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { after, test } from 'node:test'
import { initialParameters, type ModelSpec, parameterCount, parseModelSpec } from '@starling-grid/model'
import { type Clock, systemClock } from '@starling-grid/protocol'
import { workgroupShare } from '@starling-grid/shaders'
import {
  buildGraph,
  createGpuExecutor,
  type Executor,
  planGraph,
  renewedExecutor,
  SUBMIT_MS,
  traitsOf,
} from '@starling-grid/volunteer'
import {
  AWKWARD_MODEL,
  awkwardBatch,
  executorCases,
  residentCases,
  expectClose,
  inSubmits,
  noise,
  SubmitPace,
  type SubmitPiece,
} from '@starling-grid/volunteer/testing'
import { openGpu } from '../src/gpu.ts'
import { adapterEnvironment } from '../src/runtime/adapter-environment.ts'
import { countingDevice, crampedDevice, FAKE_DEVICES, watchedDevice, withoutImmediates } from './fake-devices.ts'

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
  // an inner step of Adam binds most buffers
  const inner = residentCases.filter(({ name }) => name.endsWith('adamw, decay of matrices, clipped'))
  assert.equal(inner.length, 1)
  for (const { run } of [...executorCases, ...inner])
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
  const workgroups = ({ passes: together, share = { index: 0, count: 1 } }: SubmitPiece): number =>
    together.reduce((sum, { pass }) => {
      const { x, y } = workgroupShare(pass.threads(SAMPLES), pass.workgroup, share)
      return sum + x * y
    }, 0)
  const mostWorkgroups = Math.max(...inSubmits(passes, work / 4).map(workgroups))
  assert.ok(workgroups({ passes }) > mostWorkgroups && capacity >= SAMPLES)
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

const CUT = parseModelSpec({
  input: [40, 30],
  layers: [{ type: 'linear', name: 'a', out: 50 }, { type: 'softmax' }, { type: 'linear', name: 'b', out: 20 }],
  loss: 'mse',
})
/** Of a weak GPU: every pass takes longer. */
const MOMENT_MS = 0.0005

for (const [how, wrap] of [
  ['immediates', (device: GPUDevice) => device],
  ['a uniform', withoutImmediates],
] as const)
  test(
    `a pass that is cut into several submits computes the same bits, told its place by ${how}`,
    { skip },
    async () => {
      const { device, description: adapter } = theGpu()
      const batch = { samples: 3, x: noise(3 * 1200, 1), y: noise(3 * 800, 2) }
      const gradients: Float32Array[] = []
      const counts: number[] = []
      for (const submitMs of [SUBMIT_MS, MOMENT_MS]) {
        const counted = countingDevice(wrap(device))
        const executor = await createGpuExecutor({
          device: counted.device,
          adapter,
          spec: CUT,
          readText,
          asGpu: true,
          submitMs: () => submitMs,
        })
        executor.loadParameters(initialParameters(CUT, 1))
        const gradient = new Float32Array(parameterCount(CUT))
        await executor.gradient(batch, gradient)
        executor.destroy()
        gradients.push(gradient)
        counts.push(counted.submits())
      }
      const passes = planGraph(buildGraph(CUT), {
        traits: traitsOf(device, false),
        limits: device.limits,
        maxMicroBatch: 3,
      })
      const { forward, loss, backward } = passes.parts
      assert.ok((counts[1] ?? 0) > 2 * (forward.length + loss.length + backward.length), counts.join(' and '))
      assert.ok((counts[0] ?? 0) < 4)
      assert.deepEqual(gradients[1], gradients[0])
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
