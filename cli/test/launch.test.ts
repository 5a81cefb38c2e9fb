// `starling launch` with real processes and real links: what a program of several ranks computes, and how it ends.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Grid } from '@starling-grid/cli'
import { readSafetensors } from '@starling-grid/protocol'

const STARLING = fileURLToPath(new URL('../../bin/starling.mjs', import.meta.url))
const PROGRAM = fileURLToPath(new URL('./lenet-program.ts', import.meta.url))
const GOLDEN = fileURLToPath(new URL('../../../shared/golden/trajectories/lenet_adam.safetensors', import.meta.url))
/** ms: two processes that compile, on a busy machine */
const LIMIT_MS = 240_000

interface Ended {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

function starling(...args: string[]): Promise<Ended> {
  return starlingIn(process.env, ...args)
}

function starlingIn(env: NodeJS.ProcessEnv, ...args: string[]): Promise<Ended> {
  return new Promise((resolve) => {
    execFile(process.execPath, [STARLING, ...args], { env, timeout: LIMIT_MS }, (error, stdout, stderr) =>
      resolve({ code: error === null ? 0 : Number(error.code ?? -1), stdout, stderr }),
    )
  })
}

const skip = !existsSync(GOLDEN) && 'no golden vectors beside this repository'

test(
  'two ranks train LeNet-5 to the losses and parameters that PyTorch has with their batches joined',
  {
    timeout: LIMIT_MS,
    skip,
  },
  async () => {
    const { code, stdout, stderr } = await starling('launch', '-n', '2', PROGRAM, GOLDEN)
    assert.equal(code, 0, stderr)
    const line = stdout.split('\n').find((text) => text.startsWith('[0] {')) ?? ''
    const { losses, errors } = JSON.parse(line.slice('[0] '.length)) as Record<'losses' | 'errors', number[]>
    const { tensors } = readSafetensors(await readFile(GOLDEN))
    const stored = tensors.get('losses')
    assert.ok(stored !== undefined)
    const wanted = new Float32Array(new Uint8Array(stored.data).buffer)
    assert.equal(losses.length, wanted.length)
    for (const [step, loss] of losses.entries())
      assert.ok(Math.abs(loss / (wanted[step] ?? 0) - 1) < 1e-3, `step ${step}: ${loss} of PyTorch's ${wanted[step]}`)
    assert.ok(Math.max(...errors) < 2e-2, `final parameters are off by ${Math.max(...errors)}`)
  },
)

async function inFolder(run: (folder: string) => Promise<void>): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'starling-launch-'))
  try {
    await run(folder)
  } finally {
    await rm(folder, { recursive: true })
  }
}

test('a rank that fails ends all, and its launcher with it', { timeout: LIMIT_MS }, () =>
  inFolder(async (folder) => {
    const file = join(folder, 'fails.mjs')
    // Rank 1 ends when both have joined; rank 0 would wait for ever.
    const client = new URL('../../client/src/index.ts', import.meta.url).href
    await writeFile(
      file,
      `const { init } = await import(${JSON.stringify(client)})\n` +
        'const group = await init()\n' +
        'console.log(`rank ${group.rank} of ${group.size}`)\n' +
        'await group.barrier()\n' +
        'if (group.rank === 1) process.exit(3)\n' +
        'setInterval(() => {}, 1000)\n',
    )
    const { code, stdout, stderr } = await starling('launch', '-n', '2', file)
    assert.equal(code, 1, stderr)
    assert.match(stderr, /expected all ranks to end with 0, got 3 of rank 1/)
    assert.deepEqual(stdout.trim().split('\n').toSorted(), ['[0] rank 0 of 2', '[1] rank 1 of 2'])
  }),
)

test('launchers on two machines bring the ranks of one group, which meet at a coordinator', { timeout: LIMIT_MS }, () =>
  inFolder(async (folder) => {
    const grid = await Grid.start()
    try {
      // In place of ssh: a shell of this machine, told the name of the other.
      const ssh = join(folder, 'ssh')
      await writeFile(ssh, '#!/bin/sh\nprintf "on %s\\n" "$1"\nexec sh -c "$2"\n', { mode: 0o700 })
      const client = new URL('../../client/src/index.ts', import.meta.url).href
      const file = join(folder, 'sums.mjs')
      await writeFile(
        file,
        `const { init } = await import(${JSON.stringify(client)})\n` +
          'const group = await init()\n' +
          'console.log(`${group.size} ranks sum to ${await group.allReduce(Int32Array.of(group.rank))}`)\n' +
          'await group.barrier()\n' +
          'await group.close()\n',
      )
      const env = { ...process.env, STARLING_SSH: ssh, STARLING_TOKEN: grid.token }
      const { code, stdout, stderr } = await starlingIn(
        env,
        'launch',
        '-n',
        '3',
        '--url',
        grid.url,
        '--hosts',
        'a,b',
        file,
      )
      assert.equal(code, 0, stderr)
      assert.deepEqual(stdout.trim().split('\n').toSorted(), [
        ...[0, 1, 2].map((rank) => `[${rank}] 3 ranks sum to 3`),
        'on a',
        'on b',
      ])
    } finally {
      await grid.stop()
    }
  }),
)

test('a program that is not there, and no ranks, are refused in words', { timeout: LIMIT_MS }, async () => {
  const missing = await starling('launch', '-n', '2', 'no-such-program.ts')
  assert.equal(missing.code, 2, missing.stderr)
  assert.match(missing.stderr, /expected a program, got no-such-program\.ts/)
  const none = await starling('launch', '-n', '0', PROGRAM)
  assert.equal(none.code, 2, none.stderr)
  assert.match(none.stderr, /expected a whole number from 1 on/)
})
