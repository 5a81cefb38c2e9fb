// `starling convert`: files that other programs read.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { exportModel, parameterLayout, parseModelSpec } from '@starling-grid/model'
import { versionId } from '@starling-grid/protocol'
import * as ort from 'onnxruntime-web'

const STARLING = fileURLToPath(new URL('../../bin/starling.mjs', import.meta.url))
const folder = await mkdtemp(join(tmpdir(), 'starling-convert-'))
after(() => rm(folder, { recursive: true, force: true }))

function convert(...args: string[]): Promise<{ status: number; stdout: string; stderr: string }> {
  return new Promise((resolve) => {
    execFile(process.execPath, [STARLING, 'convert', ...args], { cwd: folder }, (error, stdout, stderr) =>
      resolve({ status: error === null ? 0 : Number(error.code), stdout, stderr }),
    )
  })
}

/** y = 2a − b + 3 */
const spec = parseModelSpec({
  name: 'line',
  input: [2],
  loss: 'mse',
  layers: [{ type: 'linear', name: 'fc', out: 1 }],
})
const model = exportModel({
  spec,
  layout: parameterLayout(spec),
  parameters: Float32Array.of(2, -1, 3),
  version: { v: 1, id: versionId('a'.repeat(64)) },
  signature: { inputShape: [2], inputScale: 1, classes: 1, target: 'values', targetNames: ['price'] },
})
await writeFile(join(folder, 'line.safetensors'), model)

test('a model file becomes an ONNX file that ONNX Runtime answers with', async () => {
  const { status, stdout, stderr } = await convert('line.safetensors', '--json')
  assert.equal(status, 0, stderr)
  const bytes = await readFile(join(folder, 'line.onnx'))
  assert.deepEqual(JSON.parse(stdout), { file: join(folder, 'line.onnx'), bytes: bytes.byteLength })
  const session = await ort.InferenceSession.create(bytes, { executionProviders: ['wasm'] })
  const { output } = await session.run({ input: new ort.Tensor('float32', [20, 5, 0, 1], [2, 2]) })
  assert.deepEqual([...((output?.data ?? []) as Float32Array)], [38, 2])
  await session.release()
})

test('a model file becomes a program with its parameters beside it', async () => {
  const { status, stdout, stderr } = await convert(
    ...['line.safetensors', '--format', 'pytorch-script', '--out', 'price.py'],
  )
  assert.equal(status, 0, stderr)
  assert.match(stdout, /price\.py .* bytes\n.*price\.safetensors {2}its parameters/)
  assert.match(await readFile(join(folder, 'price.py'), 'utf8'), /"price\.safetensors"/)
  assert.deepEqual(new Uint8Array(await readFile(join(folder, 'price.safetensors'))), new Uint8Array(model))
})

test('what cannot be read or written is refused, and leaves no file', async () => {
  await writeFile(join(folder, 'text.safetensors'), 'no model')
  const before = (await readdir(folder)).sort()
  const other = await convert('text.safetensors')
  assert.equal(other.status, 1)
  assert.match(other.stderr, /text\.safetensors: .*take an exported model/)
  assert.match((await convert('absent.safetensors')).stderr, /expected a model file, got absent\.safetensors/)
  const program = await convert('line.safetensors', '--format', 'pytorch-script', '--out', 'line.safetensors')
  assert.equal(program.status, 2)
  assert.match(program.stderr, /expected a name that ends in \.py for a program, got .*line\.safetensors/)
  assert.match((await convert('line.safetensors', '--out', 'no/such/x.onnx')).stderr, /name another with --out/)
  assert.match((await convert('line.safetensors', '--format', 'tflite')).stderr, /onnx, pytorch-script/)
  assert.deepEqual((await readdir(folder)).sort(), before)
})
