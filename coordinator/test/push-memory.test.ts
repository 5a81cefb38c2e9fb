// What the parameter server remembers of pushes, across a restart: the same pushes make the same bits as without one.
import assert from 'node:assert/strict'
import { mock, test } from 'node:test'
import {
  initialVersionState,
  decodeVersionState,
  parameterLayout,
  parseModelSpec,
  type VersionForm,
} from '@starling-grid/model'
import { digest, isGridError, versionId, type VersionRef } from '@starling-grid/protocol'
import { ParameterServer } from '../src/parameter-server/parameter-server.ts'
import { decodePushMemory, encodePushMemory, type PushMemory } from '../src/parameter-server/push-memory.ts'
import { QUICK, smallJob, startCoordinator, submit, temporaryFolder, until, volunteer } from './fixture.ts'
import { gradientOf } from './pushed-gradient.ts'

const spec = parseModelSpec({ input: [6], layers: [{ type: 'linear', name: 'fc', out: 4 }] })
const form: VersionForm = { spec, layout: parameterLayout(spec), optimizer: { type: 'adamw', lr: 0.01 } }
const { total, trained } = form.layout
const COMPENSATED = { form, clipNorm: undefined, delayCompensation: 0.5, cores: 1 }
const TARGETS = 7
/** The checkpoint is of this version. */
const HALF = 12

const ref = (v: number): VersionRef => ({ v, id: versionId(v.toString(16).padStart(64, '0')) })
/** Every ninth is so large that it is clipped by what went before. */
const pushOf = (step: number) =>
  gradientOf(
    Float32Array.from({ length: total }, (_, i) => Math.sin(step * total + i) * (step % 9 === 8 ? 100 : 1)),
    trained,
  )

/**
 * Pushes number 2v−1 and 2v make version v; those after the checkpoint are up to two versions late, but not later than
 * it.
 */
async function add(server: ParameterServer, number: number): Promise<void> {
  const head = Math.ceil(number / 2) - 1
  const base = Math.max(head - (number % 3), head >= HALF ? HALF : 0)
  await server.add({ gradient: pushOf(number), targets: TARGETS, base: ref(base), damping: 1 })
  if (number % 2 === 0) await server.close(ref(number / 2), 2 * TARGETS)
}

async function after(server: ParameterServer, first: number, last: number): Promise<ParameterServer> {
  for (let number = first; number <= last; number++) await add(server, number)
  return server
}

async function begun(): Promise<ParameterServer> {
  const server = new ParameterServer(COMPENSATED)
  await server.load({ version: ref(0), ...initialVersionState(spec, form.optimizer, 3) })
  return after(server, 1, 2 * HALF)
}

const bytesOf = async (server: ParameterServer) => digest((await server.encode()).bytes)

for (const [when, open] of [
  ['between two versions', 0],
  ['in the middle of an open sum, whose pushes come again', 1],
] as const)
  test(`a server that restarts from a checkpoint written ${when} makes the same bits of the same pushes`, async () => {
    const uninterrupted = await after(await begun(), 2 * HALF + 1, 4 * HALF)
    const first = await after(await begun(), 2 * HALF + 1, 2 * HALF + open)
    const { version, bytes, remembered } = await first.encode()
    assert.deepEqual(version, ref(HALF))
    const restarted = new ParameterServer(COMPENSATED)
    await restarted.load(
      decodeVersionState(bytes, { ...form, version }),
      decodePushMemory(remembered, version, trained),
    )
    assert.equal(await bytesOf(await after(restarted, 2 * HALF + 1, 4 * HALF)), await bytesOf(uninterrupted))
    const forgetful = new ParameterServer(COMPENSATED)
    await forgetful.load(decodeVersionState(bytes, { ...form, version }))
    assert.notEqual(
      await bytesOf(await after(forgetful, 2 * HALF + 1, 4 * HALF)),
      await bytesOf(uninterrupted),
      'without what it remembered it would not',
    )
  })

test('bytes of another version, with another length or no norms are refused', () => {
  const memory: PushMemory = { norms: [1, 2.5], square: new Float32Array(trained).fill(0.1) }
  const bytes = encodePushMemory(ref(3), memory)
  assert.deepEqual(decodePushMemory(bytes, ref(3), trained), memory)
  const corrupt = (error: unknown): boolean => isGridError(error) && error.code === 'version-corrupt'
  assert.throws(() => decodePushMemory(bytes, ref(4), trained), corrupt)
  assert.throws(() => decodePushMemory(bytes, ref(3), trained - 1), corrupt)
  assert.throws(
    () => decodePushMemory(encodePushMemory(ref(3), { norms: [1], square: undefined }), ref(3), trained),
    corrupt,
  )
})

test('a coordinator that restarts in async mode hands its parameter server what the last one remembered', async () => {
  const load = ParameterServer.prototype.load
  const loads: { readonly v: number; readonly memory: PushMemory | undefined }[] = []
  const watching = mock.method(
    ParameterServer.prototype,
    'load',
    function (this: ParameterServer, ...asked: Parameters<typeof load>) {
      loads.push({ v: asked[0].version.v, memory: asked[1] })
      return load.apply(this, asked)
    },
  )
  try {
    const dataDir = await temporaryFolder()
    const coordinator = await startCoordinator({ dataDir, timing: { ...QUICK, checkpointSteps: 4 } })
    const { url } = coordinator
    await submit(
      url,
      smallJob({ mode: 'async', stop: { epochs: 50 }, volunteers: { min: 1 }, async: { delayCompensation: 0.04 } }),
    )
    volunteer(url)
    await until(
      url,
      'a checkpoint of the parameter server',
      ({ checkpoint }) => checkpoint !== null && checkpoint.v > 8,
    )
    await coordinator.stop()
    const before = loads.length
    const again = await startCoordinator({ dataDir, timing: QUICK })
    volunteer(again.url)
    await until(again.url, 'the parameter server to take over again', () => loads.length > before)
    const last = loads.at(-1)
    assert.ok(
      last !== undefined && last.v > 8 && (last.memory?.norms.length ?? 0) >= Math.min(last.v, 101),
      `loaded at ${last?.v} with ${last?.memory?.norms.length} norms`,
    )
    assert.ok(
      last.memory?.square?.some((value) => value > 0),
      'and the moving mean of squares',
    )
  } finally {
    watching.mock.restore()
  }
})
