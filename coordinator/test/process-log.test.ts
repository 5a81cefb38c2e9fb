// The log of a coordinator as programs collect it. One JSON object a line names job, member and request where they are
// known, and never a token.
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test } from 'node:test'
import { ROUTES } from '@starling-grid/protocol'
import { processLog } from '../../cli/src/process-log.ts'
import { spawnCoordinator } from './coordinator-process.ts'
import { smallJob, submit, temporaryFolder, volunteer } from './fixture.ts'

interface Line {
  readonly time: string
  readonly level: string
  readonly message: string
  readonly job?: string
  readonly member?: string
  readonly request?: string
  readonly route?: string
  readonly status?: number
}

/** What a run, strangers and an owner leave in the log of a process. */
async function logOf(args: readonly string[]) {
  const token = randomBytes(20).toString('hex')
  const coordinator = spawnCoordinator([
    '--json',
    '--port',
    '0',
    '--data-dir',
    await temporaryFolder(),
    '--token',
    token,
    ...args,
  ])
  const { url } = await coordinator.listening()
  const { id } = await submit(url, smallJob({ stop: { epochs: 1000 }, volunteers: { min: 1 } }), token)
  const owner = { authorization: `Bearer ${token}` }
  const member = volunteer(url, { name: 'marigold', stepMs: 20 })
  await member.heard('welcome')
  member.raw({ type: 'nonsense' })
  await member.heard('refused')
  const answers = [
    await fetch(`${url}${ROUTES.jobs}?token=${token}`, { headers: owner }),
    await fetch(`${url}/nothing/${token}`),
    await fetch(`${url}${ROUTES.jobs}`, { method: 'POST', headers: { authorization: 'Bearer wrong-wrong-wrong' } }),
  ]
  await Promise.all(answers.map((answer) => answer.arrayBuffer()))
  coordinator.child.kill('SIGTERM')
  assert.equal(await coordinator.ended, 0)
  return { lines: coordinator.stderr, id, token, session: member.session ?? '', answers }
}

test('each line is one event with time, level and message, and with job, member and request where known', async () => {
  const { lines, id, token, session, answers } = await logOf(['--log-format', 'json', '--access-log'])
  const read = lines.map((line) => JSON.parse(line) as Line)
  for (const { time, level, message } of read) {
    assert.ok(new Date(time).toISOString() === time && message.length > 0)
    assert.ok(['info', 'warn', 'error'].includes(level))
  }
  assert.ok(read.some(({ message }) => message.startsWith('listens at http://')))
  assert.ok(read.some(({ job, member, message }) => job === id && member === 'marigold' && /refused/.test(message)))
  const ids = answers.map(({ headers }) => headers.get('x-request-id'))
  for (const request of ids) assert.equal(read.filter((line) => line.request === request).length, 1)
  assert.deepEqual(
    ids.map((request) => read.find((line) => line.request === request)).map((line) => [line?.route, line?.status]),
    [
      [ROUTES.jobs, 400],
      ['none', 404],
      [ROUTES.jobs, 401],
    ],
  )
  for (const secret of [token, session, 'wrong-wrong-wrong'])
    assert.equal(lines.join('\n').includes(secret), false, 'no token is in the log')
})

test('without --access-log no request has a line, and people see what is wrong alone', async () => {
  const json = await logOf(['--log-format', 'json'])
  assert.equal(
    json.lines.some((line) => line.includes('"request"')),
    false,
  )
  const plain = await logOf([])
  assert.equal(
    plain.lines.some((line) => / info  /.test(line)),
    false,
    plain.lines.join('\n'),
  )
  const all = await logOf(['--log-level', 'info'])
  assert.ok(
    all.lines.some((line) => new RegExp(`^\\S+Z info   ?${all.id}  .*refused`).test(line)),
    all.lines.join('\n'),
  )
})

test('a text that moves the cursor of a terminal leaves its control characters behind', () => {
  let out = ''
  const write = (text: string): void => {
    out += text
  }
  const log = processLog({ logFormat: 'text' }, { write })
  log({ level: 'warn', message: 'one \u001b[2J two' })
  log({ level: 'info', message: 'not shown' })
  assert.equal(out.includes('\u001b'), false)
  assert.match(out, /Z warn {2}one .*two\n$/)
})
