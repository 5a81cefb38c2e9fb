// `starling invite` and what a volunteer's owner does with the link, against a real coordinator.
import assert from 'node:assert/strict'
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { type Coordinator, createCoordinator } from '@starling-grid/coordinator'
import { type InviteView, ROUTES } from '@starling-grid/protocol'

const STARLING = fileURLToPath(new URL('../../bin/starling.mjs', import.meta.url))
const TOKEN = 'the-first-token-of-tests'

interface Ended {
  readonly status: number
  readonly stdout: string
  readonly stderr: string
}

describe('invites at a terminal', { timeout: 240_000 }, () => {
  let folder: string
  let coordinator: Coordinator
  const environment = (more: NodeJS.ProcessEnv = {}): NodeJS.ProcessEnv => ({
    ...process.env,
    STARLING_URL: coordinator.url,
    STARLING_TOKEN: TOKEN,
    STARLING_INVITE: undefined,
    ...more,
  })
  const starling = (args: readonly string[]): Promise<Ended> =>
    new Promise((resolve) =>
      execFile(process.execPath, [STARLING, ...args], { env: environment() }, (error, stdout, stderr) =>
        resolve({ status: error === null ? 0 : Number(error.code), stdout, stderr }),
      ),
    )
  const headers = { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json' }
  const newLink = async (): Promise<string> => {
    const answer = await fetch(coordinator.url + ROUTES.invites, { method: 'POST', headers, body: '{"uses":1}' })
    return ((await answer.json()) as { link: string }).link
  }
  const uses = async (): Promise<number[]> => {
    const answer = await fetch(coordinator.url + ROUTES.invites, { headers })
    return ((await answer.json()) as { invites: InviteView[] }).invites.map(({ used }) => used)
  }

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'starling-invite-'))
    coordinator = createCoordinator({
      dataDir: join(folder, 'data'),
      token: TOKEN,
      port: 0,
      participation: 'invited',
    })
    await coordinator.start()
  })
  after(async () => {
    await coordinator.stop()
    await rm(folder, { recursive: true, force: true })
  })

  test('a volunteer without an invite ends and says what to ask for', async () => {
    const { status, stderr } = await starling(['volunteer', coordinator.url, '--executor', 'reference'])
    assert.equal(status, 1, stderr)
    assert.match(stderr, /invite-required/)
    assert.match(stderr, /Ask the owner of the coordinator for an invite link/)
  })

  test('the link, a file with it and the environment let a volunteer in', async () => {
    const made = await starling(['invite', 'create', '--uses', '1', '--expires', '12h'])
    assert.equal(made.status, 0, made.stderr)
    const link = made.stdout.trim()
    assert.ok(link.startsWith(`${coordinator.url}/#invite=i`), link)
    const file = join(folder, 'invite')
    const [second, third] = [await newLink(), await newLink()]
    await writeFile(file, `${second}\n`)
    const ways: readonly (readonly [readonly string[], NodeJS.ProcessEnv])[] = [
      [[link], {}],
      [[coordinator.url, '--invite-file', file], {}],
      [[coordinator.url], { STARLING_INVITE: third.split('=')[1] }],
    ]
    for (const [at, [args, more]] of ways.entries()) {
      const child = spawn(process.execPath, [STARLING, 'volunteer', ...args, '--executor', 'reference'], {
        env: environment(more),
      })
      after(() => child.kill('SIGKILL'))
      const ended = once(child, 'close')
      while ((await uses()).filter((used) => used === 1).length <= at && child.exitCode === null) await delay(100)
      assert.equal(child.exitCode, null, `it was let in: ${args.join(' ')}`)
      child.kill('SIGINT')
      await ended
    }
    assert.match((await starling(['invite', 'list'])).stdout, /^i[0-9a-f]{16} +1 +1 /m)
  })
})
