import assert from 'node:assert/strict'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { startChild } from '@starling-grid/cli'
import { readSafetensors } from '@starling-grid/protocol'

async function runDemo(
  args: readonly string[],
): Promise<{ readonly code: number | string; readonly stdout: string[]; readonly stderr: string[] }> {
  const stdout: string[] = []
  const stderr: string[] = []
  const child = startChild({
    name: 'demo',
    args: ['demo', '--once', ...args],
    onLine: (line, stream) => void (stream === 'stdout' ? stdout : stderr).push(line),
  })
  return { code: await child.ended, stdout, stderr }
}

test(
  'one command trains two volunteers in a ring on real digits, and leaves a model behind',
  { timeout: 300_000 },
  async () => {
    const out = await mkdtemp(join(tmpdir(), 'starling-demo-'))
    try {
      const { code, stdout, stderr } = await runDemo(['--epochs', '1', '--json', '--port', '0', '--out', out])
      assert.equal(code, 0, stderr.slice(-5).join('\n'))
      assert.match(stderr.find((line) => line.trim() !== '' && !line.includes('page')) ?? '', /Next steps/)
      const result = JSON.parse(stdout.at(-1) ?? '') as Record<string, number | string>
      assert.equal(result['mode'], 'ring')
      assert.equal(result['volunteers'], 2)
      assert.equal(result['samplesCommitted'], 9_000)
      assert.equal(result['samplesExpected'], 9_000)
      assert.ok(Number(result['validationAccuracy']) > 0.9, `accuracy ${result['validationAccuracy']} after one epoch`)
      const { tensors } = readSafetensors(new Uint8Array(await readFile(String(result['model']))))
      assert.deepEqual(tensors.get('conv1.weight')?.shape, [6, 1, 5, 5])
      assert.ok(![...tensors.keys()].some((name) => name.startsWith('optimizer')))
    } finally {
      await rm(out, { recursive: true, force: true })
    }
  },
)

test('a taken port is one clear line and exit code 1', { timeout: 60_000 }, async () => {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  const port = typeof address === 'object' && address !== null ? address.port : 0
  const { code, stderr } = await runDemo(['--port', String(port)])
  server.close()
  assert.equal(code, 1)
  assert.match(stderr.at(-1) ?? '', new RegExp(`${port}.*port-taken`))
})

test('an unreadable dataset is one clear line and exit code 1', { timeout: 60_000 }, async () => {
  const { code, stderr } = await runDemo(['--port', '0', '--data', join(tmpdir(), 'no-such-folder')])
  assert.equal(code, 1)
  assert.match(stderr.at(-1) ?? '', /no-such-folder.*dataset-unreadable/)
})

test('a wrong option is exit code 2', { timeout: 60_000 }, async () => {
  assert.equal((await runDemo(['--volunteers', 'many'])).code, 2)
})
