// Which adapters `--gpus` means, and how a thread opens exactly one of them.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type GpuSelection, SELECTION_VARIABLES, type SelectionTrials } from '../src/equal-gpus.ts'
import { OpeningTurns, seatsOf } from '../src/gpu-seats.ts'
import { chosenAdapters, gpuWishIn, type ListedAdapter } from '../src/gpu-wish.ts'
import { createNodeHost } from '../src/host.ts'
import { adapterEnvironment } from '../src/runtime/adapter-environment.ts'
import { listAdapters } from '../src/runtime/all-adapters.ts'

const listed = (name: string, changes: Partial<ListedAdapter> = {}): ListedAdapter => ({
  backend: 'vulkan',
  name,
  device: name.toLowerCase(),
  driver: 'a driver',
  vendor: 'nvidia',
  software: false,
  ...changes,
})
const RTX = listed('GeForce RTX 4090')
const ARC = listed('Intel Arc A770', { vendor: 'intel' })
const MESA = listed('llvmpipe (LLVM 15)', { vendor: 'mesa', software: true })
const SWIFT = listed('SwiftShader Device', { vendor: 'google', software: true })

const chosen = (wish: string, all: readonly ListedAdapter[]) => chosenAdapters(gpuWishIn(wish), all)

test('all, a number and parts of names are wishes; nothing else is', () => {
  assert.deepEqual(gpuWishIn('all'), { type: 'all' })
  assert.deepEqual(gpuWishIn('2'), { type: 'count', count: 2 })
  assert.deepEqual(gpuWishIn('4090, a770'), { type: 'names', names: ['4090', 'a770'] })
  for (const wrong of ['', '0', '65', '4090,', ',', '007000'])
    assert.throws(() => gpuWishIn(wrong), { code: 'usage' }, `"${wrong}"`)
})

test('all means every GPU and no software adapter, through one of several interfaces', () => {
  const twice = [
    listed('GeForce RTX 4090', { backend: 'd3d11' }),
    { ...RTX, backend: 'd3d12' },
    { ...ARC, backend: 'd3d12' },
  ]
  assert.deepEqual(chosen('all', [MESA, RTX, RTX, ARC]), [RTX, RTX, ARC])
  assert.deepEqual(chosen('all', twice), twice.slice(1))
  assert.deepEqual(chosen('2', [RTX, MESA, ARC]), [RTX, ARC])
})

test('too few GPUs are refused with what is here and what to do', () => {
  const refusal = {
    code: 'no-adapter',
    message: /expected 1 GPU for --gpus, got 0 \(llvmpipe.*, SwiftShader.*lavapipe,swiftshader/,
  }
  assert.throws(() => chosen('all', [MESA, SWIFT]), refusal)
  assert.throws(() => chosen('3', [RTX, ARC]), /expected 3 GPUs for --gpus, got 2/)
  assert.throws(() => chosen('all', []), /got 0 \(no adapter\)/)
})

test('a part of a name means one adapter: a GPU once, a software adapter as often as it is named', () => {
  assert.deepEqual(chosen('a770,4090', [RTX, ARC]), [ARC, RTX])
  assert.deepEqual(chosen('lavapipe,swiftshader', [SWIFT, MESA]), [MESA, SWIFT])
  assert.deepEqual(chosen('swiftshader,swiftshader', [SWIFT]), [SWIFT, SWIFT])
  assert.deepEqual(chosen('4090,4090', [RTX, ARC, RTX]), [RTX, RTX])
  assert.throws(() => chosen('4090,4090', [RTX, ARC]), /expected another adapter whose name contains "4090"/)
  assert.throws(() => chosen('radeon', [RTX, ARC]), { code: 'no-adapter' })
})

/** A machine with two equal GPUs, whose driver heeds some variable. */
function machine(heeds: (selection: GpuSelection) => boolean): SelectionTrials & { readonly tried: GpuSelection[] } {
  const tried: GpuSelection[] = []
  return {
    addresses: ['0000:00:02.0', '0000:65:00.0', '0000:b3:00.0'],
    tried,
    async list(selection) {
      tried.push(selection)
      if (!heeds(selection)) return [ARC, RTX, RTX]
      return selection['DRI_PRIME'] === 'pci-0000_00_02_0' ? [ARC] : [RTX]
    },
  }
}

test('equal GPUs are opened under variables that show one of them alone, each its own', async () => {
  const trials = machine((selection) => selection['DRI_PRIME'] !== undefined)
  const seats = await seatsOf([RTX, ARC, RTX], [ARC, RTX, RTX], trials)
  assert.deepEqual(
    seats.map(({ selection }) => selection?.['DRI_PRIME']),
    ['pci-0000_65_00_0', undefined, 'pci-0000_b3_00_0'],
  )
  assert.equal(trials.tried.length, 3, 'each address is tried once')
})

test("where Mesa's selection is not installed, NVIDIA's own is taken; without any the GPUs are refused", async () => {
  const nvidia = await seatsOf(
    [RTX, RTX],
    [ARC, RTX, RTX],
    machine((selection) => 'CUDA_VISIBLE_DEVICES' in selection),
  )
  assert.deepEqual(
    nvidia.map(({ selection }) => selection),
    [{ CUDA_VISIBLE_DEVICES: '0' }, { CUDA_VISIBLE_DEVICES: '1' }],
  )
  await assert.rejects(
    seatsOf(
      [RTX, RTX],
      [ARC, RTX, RTX],
      machine(() => false),
    ),
    { code: 'no-adapter', message: /expected a driver that shows one of 2 GPUs "GeForce RTX 4090" alone/ },
  )
})

test('a GPU whose name is the beginning of another one is told apart as equal ones are', async () => {
  const ti = listed('GeForce RTX 4090 Ti')
  const trials = {
    addresses: ['0000:65:00.0', '0000:b3:00.0'],
    list: async ({ DRI_PRIME: at }: GpuSelection) => [at === 'pci-0000_65_00_0' ? ti : RTX],
  }
  const [seat, other] = await seatsOf([RTX, ti], [ti, RTX], trials)
  assert.equal(seat?.selection?.['DRI_PRIME'], 'pci-0000_b3_00_0')
  assert.equal(other?.selection, undefined)
})

test('adapters are opened one at a time, each under the variables of its own selection', async () => {
  const turns = new OpeningTurns()
  const seen: (string | undefined)[][] = []
  const look = async (): Promise<void> => {
    const now = () => SELECTION_VARIABLES.map((name) => process.env[name])
    seen.push(now())
    await new Promise((resolve) => setImmediate(resolve))
    assert.deepEqual(now(), seen.at(-1), 'nothing changes while an adapter is opened')
  }
  const selection = { DRI_PRIME: 'pci-0000_65_00_0', MESA_VK_DEVICE_SELECT_FORCE_DEFAULT_DEVICE: '1' }
  await Promise.all([turns.take({ adapter: RTX, selection }, look), turns.take({ adapter: ARC }, look)])
  assert.deepEqual(seen, [
    ['pci-0000_65_00_0', '1', undefined],
    [undefined, undefined, undefined],
  ])
  assert.deepEqual(
    SELECTION_VARIABLES.filter((name) => name in process.env),
    [],
    'what is started later sees all adapters',
  )
})

test('what computes on the processor takes no adapters', () => {
  const options = { coordinatorUrl: 'http://127.0.0.1:1', executor: 'wasm', gpus: [{ adapter: RTX }] } as const
  assert.throws(() => createNodeHost(options), {
    code: 'usage',
    message: /expected --gpus with --executor webgpu, got wasm/,
  })
})

test('every adapter that Dawn sees is listed, with what a person calls it', async (t) => {
  const { env, description } = await adapterEnvironment()
  if (description.startsWith('none')) return t.skip(`no adapter: ${description}`)
  const found = await listAdapters(env)
  assert.ok(found.length > 0, 'expected what the refusal of Dawn lists')
  for (const { name, device, backend } of found) assert.ok(name !== '' && device !== '' && backend !== '')
})
