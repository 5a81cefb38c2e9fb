import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { isGridError } from '@starling-grid/protocol'
import { adapterLabel, openGpu } from '../src/gpu.ts'
import { adapterEnvironment } from '../src/runtime/adapter-environment.ts'

const TYPESCRIPT = fileURLToPath(new URL('../../bin/typescript.mjs', import.meta.url))
const PROGRAM = fileURLToPath(new URL('./double-on-gpu.ts', import.meta.url))
/** Opening takes 0.3 s; what does not end by itself would take forever. */
const TIME_LIMIT_MS = 30_000

const { description } = await adapterEnvironment()
const skip = description.startsWith('none') && `adapter: ${description}`

test('a GPU opens, computes and closes, and the process ends by itself', { skip }, () => {
  const { status, stdout, stderr } = spawnSync(process.execPath, [TYPESCRIPT, PROGRAM], {
    encoding: 'utf8',
    timeout: TIME_LIMIT_MS,
  })
  assert.equal(status, 0, stderr)
  const { doubled, description, maxStorageBufferBindingSize } = JSON.parse(stdout)
  assert.deepEqual(doubled, [2, 4, 6, 8])
  assert.equal(description.executor, 'webgpu')
  // The specification's default is 128 MiB; every adapter met so far offers more.
  assert.ok(maxStorageBufferBindingSize >= 2 ** 27)
})

test('an adapter that is not there is refused with the names of those that are', { skip }, async () => {
  await assert.rejects(
    openGpu({ adapter: 'Voodoo 2' }),
    (error) => isGridError(error) && error.code === 'no-adapter' && /Voodoo 2.*got \S/.test(error.message),
  )
})

test('a software adapter is called one', () => {
  const adapter = { name: 'SwiftShader driver 5.0.0', vendor: 'google', executor: 'webgpu' } as const
  assert.equal(adapterLabel({ ...adapter, software: true }), 'SwiftShader driver 5.0.0 (software, google)')
  assert.equal(adapterLabel({ ...adapter, name: 'GeForce', vendor: 'nvidia', software: false }), 'GeForce (nvidia)')
})
