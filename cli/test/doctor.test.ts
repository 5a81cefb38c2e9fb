import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { createServer, type RequestListener } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { checkCoordinator } from '../src/doctor/coordinator.ts'
import { checkDisk, checkNode, halvesText, severalText } from '../src/doctor/this-machine.ts'
import { checkWebRtc } from '../src/doctor/webrtc.ts'

const STARLING = fileURLToPath(new URL('../../bin/starling.mjs', import.meta.url))

test('--json ends with one line of JSON that holds every check, and a failure is exit code 1', () => {
  const { status, stdout, stderr } = spawnSync(process.execPath, [STARLING, 'doctor', 'nonsense', '--json'], {
    encoding: 'utf8',
  })
  assert.equal(status, 1)
  const { checks } = JSON.parse(stdout.trim().split('\n').at(-1) ?? '')
  assert.deepEqual(
    checks.map(({ name }: { name: string }) => name),
    ['node', 'adapter', 'browser', 'webrtc', 'disk', 'coordinator'],
  )
  for (const { state, detail, cure } of checks) {
    assert.ok(detail.length > 0)
    assert.equal(state === 'ok', cure === null)
  }
  assert.match(stderr, /failure +coordinator/)
  // No colours in a pipe.
  assert.ok(!stderr.includes('\u001b'))
})

test('of a machine with several GPUs it is said how to lend them all; software adapters are no GPUs', () => {
  const listed = (name: string, software = false) =>
    ({ backend: 'vulkan', name, device: name, driver: '', vendor: '', software }) as const
  assert.equal(
    severalText([listed('GeForce'), listed('Arc'), listed('llvmpipe', true)]),
    '; 2 GPUs: GeForce, Arc (`starling volunteer URL --gpus all` lends them as one member)',
  )
  assert.equal(severalText([listed('GeForce'), listed('llvmpipe', true), listed('SwiftShader', true)]), '')
})

test('what an adapter has for jobs in f16 is said', () => {
  const adapter = { name: 'H200', vendor: 'nvidia', software: false, executor: 'webgpu' } as const
  assert.match(halvesText(adapter, {}), /^without shader-f16: jobs that require it go to others$/)
  assert.equal(halvesText({ ...adapter, f16: true }, {}), 'with shader-f16')
  assert.equal(halvesText({ ...adapter, f16: true }, { matrixUnits: true }), 'with shader-f16 and matrix units for it')
})

test('wrong use is exit code 2, help is 0', () => {
  const code = (...args: string[]) => spawnSync(process.execPath, [STARLING, 'doctor', ...args]).status
  assert.equal(code('--no-such-option'), 2)
  assert.equal(code('--help'), 0)
})

test('a coordinator that answers is found, and its clock compared', async () => {
  const states = await withServer((_request, response) => response.end('ok'), checkCoordinator)
  assert.deepEqual(
    states.map(({ name, state }) => [name, state]),
    [
      ['coordinator', 'ok'],
      ['clock', 'ok'],
    ],
  )
  const late = await withServer(
    (_request, response) => response.setHeader('date', new Date(0).toUTCString()).end(),
    checkCoordinator,
  )
  assert.match(late[1]?.detail ?? '', /s ahead of the coordinator/)
})

test('something else at the address, or nothing, is a failure within 5 s', async () => {
  const other = await withServer((_request, response) => response.writeHead(404).end(), checkCoordinator)
  assert.match(other[0]?.detail ?? '', /answered 404/)
  const started = performance.now()
  const silent = await withServer(() => undefined, checkCoordinator)
  assert.match(silent[0]?.detail ?? '', /no answer within/)
  assert.ok(performance.now() - started < 5000)
})

test('an old Node, and a data folder that cannot be, are failures with a cure', async () => {
  assert.equal(checkNode('20.18.3').state, 'failure')
  assert.equal(checkNode('20.19.0').state, 'ok')
  assert.equal(checkNode('24.0.0').state, 'ok')
  const inAFile = await checkDisk(join(fileURLToPath(import.meta.url), 'data'))
  assert.equal(inAFile.state, 'failure')
  assert.match(inAFile.cure ?? '', /--data-dir/)
  assert.notEqual((await checkDisk(join(tmpdir(), 'not', 'there', 'yet'))).state, 'failure')
})

test('two WebRTC peers on this machine reach each other', async () => {
  assert.equal((await checkWebRtc()).state, 'ok')
})

async function withServer<T>(answer: RequestListener, use: (url: string) => Promise<T>): Promise<T> {
  const server = createServer(answer)
  await new Promise<void>((resolve) => server.listen(0, 'localhost', resolve))
  const address = server.address()
  assert.ok(typeof address === 'object' && address !== null)
  try {
    return await use(`http://localhost:${address.port}`)
  } finally {
    server.closeAllConnections()
    server.close()
  }
}
