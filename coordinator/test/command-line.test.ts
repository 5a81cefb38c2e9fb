// How the process starts, fails and ends: one clear line, and exit codes that scripts can rely on.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { chmod, readFile, stat, writeFile } from 'node:fs/promises'
import { connect, createServer, type AddressInfo } from 'node:net'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { ROUTES } from '@starling-grid/protocol'
import { CommanderError } from 'commander'
import { parseOptions, timingOf } from '../../cli/src/start-options.ts'
import { relayQuota } from '../src/net/relay-quota.ts'
import { ownerToken } from '../src/owner-token.ts'
import { spawnCoordinator } from './coordinator-process.ts'
import { OWNER, smallJob, temporaryFolder, TOKEN } from './fixture.ts'

async function failed(
  args: readonly string[],
): Promise<{ readonly code: number | string; readonly lines: readonly string[] }> {
  const coordinator = spawnCoordinator(args)
  return { code: await coordinator.ended, lines: coordinator.stderr }
}

test('a taken port ends with one line that says which and how to choose another', async () => {
  const other = createServer().listen(0, '127.0.0.1')
  await once(other, 'listening')
  after(() => other.close())
  const { port } = other.address() as AddressInfo
  const { code, lines } = await failed([
    '--port',
    String(port),
    '--data-dir',
    await temporaryFolder(),
    '--token',
    TOKEN,
  ])
  assert.deepEqual([code, lines.length], [1, 1], lines.join('\n'))
  assert.match(
    lines[0] ?? '',
    new RegExp(`got ${port}: http://127.0.0.1:${port} is another program.*--port ${port + 1}.*\\(port-taken\\)`),
  )
})

test('a data folder that cannot be written, and a dataset that is not there, end with one line', async () => {
  const folder = await temporaryFolder()
  await writeFile(join(folder, 'file'), '')
  for (const token of [['--token', TOKEN], []]) {
    const { code, lines } = await failed(['--port', '0', '--data-dir', join(folder, 'file'), ...token])
    assert.deepEqual([code, lines.length], [1, 1], lines.join('\n'))
    assert.match(lines[0] ?? '', /--data-dir.*\(folder-unwritable\)/)
  }
  await writeFile(
    join(folder, 'job.json'),
    JSON.stringify(smallJob({ dataset: { source: 'mnist', folder: join(folder, 'nothing') } })),
  )
  const unreadable = await failed([
    '--port',
    '0',
    '--data-dir',
    join(folder, 'data'),
    '--token',
    TOKEN,
    '--job',
    join(folder, 'job.json'),
  ])
  assert.deepEqual([unreadable.code, unreadable.lines.length], [1, 1], unreadable.lines.join('\n'))
  assert.match(unreadable.lines[0] ?? '', /\(dataset-unreadable\)/)
})

test('wrong use is exit code 2', async () => {
  const { code, lines } = await failed(['--port', 'no'])
  assert.deepEqual([code, lines.length], [2, 1], lines.join('\n'))
  for (const args of [
    ['--port', '70000'],
    ['--nonsense'],
    ['--timing', '{"stateMs":"x"}'],
    ['--timing', '{'],
    ['--public-url', 'grid'],
    ['--link-open', '0.5'],
    ['--link-open', 'long'],
    ['--link-open', '121'],
    ['--relay-quota', '0'],
    ['--relay-quota', 'all'],
    ['--relay-quota', '1001'],
  ])
    assert.throws(() => parseOptions(args), CommanderError, args.join(' '))
  await assert.rejects(ownerToken(await temporaryFolder(), { token: 'short' }), { code: 'usage' })
})

test('who gives links more time gives a ring as much more to form', () => {
  const timing = (...args: string[]) => timingOf(parseOptions(args))
  assert.deepEqual(timing(), { linkOpenMs: 12_000, formMs: 30_000 })
  assert.deepEqual(timing('--link-open', '40'), { linkOpenMs: 40_000, formMs: 58_000 })
  assert.deepEqual(timing('--link-open', '2.5'), { linkOpenMs: 2500, formMs: 30_000 })
  assert.deepEqual(timing('--timing', '{"linkOpenMs":3000}'), { linkOpenMs: 3000, formMs: 30_000 })
})

test('the owner says how much the relay carries in an hour for one member; an address has four times as much', () => {
  const quota = (...args: string[]) => relayQuota(parseOptions(args).relayQuota)
  assert.deepEqual(quota(), { perMember: 40e9, perAddress: 160e9 })
  assert.deepEqual(quota('--relay-quota', '0.5'), { perMember: 0.5e9, perAddress: 2e9 })
})

test('the owner token is made once, shown once, and readable by its user alone', async () => {
  const folder = await temporaryFolder()
  const first = spawnCoordinator(['--json', '--port', '0', '--data-dir', folder])
  const { tokenFile, url, port } = await first.listening()
  assert.equal(tokenFile, join(folder, 'owner-token'))
  const token = (await readFile(tokenFile, 'utf8')).trim()
  assert.match(token, /^[0-9a-f]{64}$/)
  assert.equal(url, `http://127.0.0.1:${port}`)
  const shown = first.stderr.join('\n')
  assert.ok(
    shown.includes(token) &&
      shown.includes(`npm run volunteer -- ${url}`) &&
      shown.includes(`${url}${ROUTES.dashboard}`),
    shown,
  )
  assert.doesNotMatch(first.stdout.join(), new RegExp(token), 'scripts keep what they read from stdout')
  if (process.platform !== 'win32') assert.equal((await stat(join(folder, 'owner-token'))).mode & 0o777, 0o600)
  first.child.kill('SIGTERM')
  assert.equal(await first.ended, 0)
  const second = spawnCoordinator(['--json', '--port', '0', '--data-dir', folder])
  await second.listening()
  assert.equal((await readFile(tokenFile, 'utf8')).trim(), token)
  assert.equal(second.stderr.join('\n').includes(token), false, 'not shown again')
})

test('threat 58: file modes that let other users read data or token are corrected, with a warning', async () => {
  const folder = await temporaryFolder()
  const file = join(folder, 'owner-token')
  await writeFile(file, `${TOKEN}\n`, { mode: 0o644 })
  await chmod(folder, 0o755)
  const loose = spawnCoordinator(['--json', '--port', '0', '--data-dir', folder])
  await loose.listening()
  assert.match(loose.stderr.join('\n'), /Warning: other users .* could read .*owner-token until now/)
  assert.equal((await stat(file)).mode & 0o777, 0o600)
  assert.equal((await stat(folder)).mode & 0o777, 0o700)
  loose.child.kill('SIGTERM')
  await loose.ended
})

test('threat 58: a token on the command line causes a warning, and one in a file does not', async () => {
  const folder = await temporaryFolder()
  const shown = spawnCoordinator(['--json', '--port', '0', '--data-dir', join(folder, 'a'), '--token', TOKEN])
  await shown.listening()
  assert.match(shown.stderr.join('\n'), /Warning: --token shows the owner token .* --token-file FILE or STARLING_TOKEN/)
  const file = join(folder, 'token')
  await writeFile(file, `${TOKEN}\n`, { mode: 0o640 })
  const filed = spawnCoordinator(['--json', '--port', '0', '--data-dir', join(folder, 'b'), '--token-file', file])
  const { url } = await filed.listening()
  assert.doesNotMatch(filed.stderr.join('\n'), /--token shows/)
  assert.equal((await stat(file)).mode & 0o777, 0o600)
  const dry = await fetch(`${url}${ROUTES.jobs}?dry=true`, {
    method: 'POST',
    headers: { ...OWNER, 'content-type': 'application/json' },
    body: JSON.stringify(smallJob()),
  })
  assert.equal(dry.status, 200)
  for (const { child } of [shown, filed]) child.kill('SIGTERM')
  await Promise.all([shown.ended, filed.ended])
  await assert.rejects(ownerToken(folder, { tokenFile: join(folder, 'none') }), { code: 'usage' })
})

test('a job file is submitted at the first start and goes on at the second', async () => {
  const folder = await temporaryFolder()
  await writeFile(join(folder, 'job.json'), JSON.stringify(smallJob()))
  const jobs = async (): Promise<string[]> => {
    const coordinator = spawnCoordinator([
      '--json',
      '--port',
      '0',
      '--data-dir',
      join(folder, 'data'),
      '--token',
      TOKEN,
      '--job',
      join(folder, 'job.json'),
    ])
    const { url } = await coordinator.listening()
    const { jobs } = (await (await fetch(`${url}${ROUTES.jobs}`, { headers: OWNER })).json()) as {
      jobs: { job: { id: string } }[]
    }
    coordinator.child.kill('SIGINT')
    assert.equal(await coordinator.ended, 0)
    return jobs.map(({ job }) => job.id)
  }
  const first = await jobs()
  assert.equal(first.length, 1)
  assert.deepEqual(await jobs(), first)
})

test('the coordinator that is told twice to stop leaves at once, though a connection is still open', async () => {
  const coordinator = spawnCoordinator([
    '--json',
    '--port',
    '0',
    '--data-dir',
    await temporaryFolder(),
    '--token',
    TOKEN,
  ])
  const { port } = await coordinator.listening()
  // Opens a WebSocket and then answers nothing, not even the closing handshake.
  const socket = connect(port, '127.0.0.1')
  socket.write(
    `GET /api/watch HTTP/1.1\r\nHost: localhost:${port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n` +
      'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n',
  )
  socket.on('error', () => undefined)
  await once(socket, 'data')
  const drained = once(coordinator.child.stderr ?? assert.fail(), 'data', { signal: AbortSignal.timeout(20_000) })
  coordinator.child.kill('SIGTERM')
  await drained
  coordinator.child.kill('SIGTERM')
  assert.equal(await coordinator.ended, 130)
})
