// `starling launch` over several machines, and the end of all ranks with one of them.
import assert from 'node:assert/strict'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { Grid } from '@starling-grid/cli'
import { runStarling } from './command-process.ts'

/** ms: processes that compile, on a busy machine */
const LIMIT_MS = 240_000

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
    const { status, stdout, stderr } = await runStarling(['launch', '-n', '2', file], { timeout: LIMIT_MS })
    assert.equal(status, 1, stderr)
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
      const args = ['launch', '-n', '3', '--url', grid.url, '--hosts', 'a,b', file]
      const { status, stdout, stderr } = await runStarling(args, { env, timeout: LIMIT_MS })
      assert.equal(status, 0, stderr)
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
