// `starling token` against a real coordinator: the secret is told once and is never an argument.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { type Coordinator, createCoordinator } from '@starling-grid/coordinator'

const STARLING = fileURLToPath(new URL('../../bin/starling.mjs', import.meta.url))
const FIRST = 'the-first-token-of-tests'

interface Ended {
  readonly status: number
  readonly stdout: string
  readonly stderr: string
}

function starling(args: readonly string[], env: NodeJS.ProcessEnv): Promise<Ended> {
  return new Promise((resolve) =>
    execFile(process.execPath, [STARLING, ...args], { env: { ...process.env, ...env } }, (error, stdout, stderr) =>
      resolve({ status: error === null ? 0 : Number(error.code), stdout, stderr }),
    ),
  )
}

describe('tokens at a terminal', { timeout: 120_000 }, () => {
  let folder: string
  let coordinator: Coordinator
  const token = (args: readonly string[], secret = FIRST): Promise<Ended> =>
    starling(['token', ...args], { STARLING_URL: coordinator.url, STARLING_TOKEN: secret })

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'starling-token-'))
    coordinator = createCoordinator({ dataDir: join(folder, 'data'), token: FIRST, port: 0 })
    await coordinator.start()
  })
  after(async () => {
    await coordinator.stop()
    await rm(folder, { recursive: true, force: true })
  })

  test('a token is made, listed, used and revoked', async () => {
    const made = await token(['create', '--scope', 'admin', '--name', 'for CI', '--expires', '30d'])
    assert.equal(made.status, 0, made.stderr)
    assert.match(made.stdout, /^t[0-9a-f]{16}\.[0-9a-f]{64}\n$/)
    const secret = made.stdout.trim()
    const listed = await token(['list'], secret)
    assert.match(listed.stdout, /admin .* for CI/)
    assert.equal(listed.stdout.includes(secret), false)
    assert.equal((await token(['revoke', secret.split('.')[0] ?? ''])).status, 0)
    const refused = await token(['list'], secret)
    assert.deepEqual([refused.status, refused.stderr.includes('token-required')], [1, true])
  })

  test('a token goes into a new file that this user alone may read', async () => {
    const file = join(folder, 'of-anna')
    const made = await token(['create', '--out', file])
    assert.deepEqual([made.status, made.stdout], [0, ''])
    assert.equal((await stat(file)).mode & 0o777, 0o600)
    const refused = await token(['list'], (await readFile(file, 'utf8')).trim())
    assert.match(refused.stderr, /expected a token of scope admin, got one of jobs:write/)
    await writeFile(join(folder, 'taken'), '')
    assert.equal((await token(['create', '--out', join(folder, 'taken')])).status, 1)
  })

  test('wrong scopes and durations are refused before a request', async () => {
    for (const args of [['create', '--scope', 'root'], ['create', '--expires', 'soon'], ['revoke']])
      assert.equal((await token(args)).status, 2, args.join(' '))
  })
})
