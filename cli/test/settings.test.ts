// Settings of `starling start` from its command line, the environment and a file. Which one wins, where each comes
// from, and the error for a wrong one.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { ADAPTER_CHOICE } from '@starling-grid/client-node'
import { isGridError } from '@starling-grid/protocol'
import { Command, Option } from 'commander'
import { parse } from 'yaml'
import { httpsOption, readPort } from '../src/arguments.ts'
import { completeSettings, withSettings } from '../src/settings.ts'
import { startSettings } from '../src/start-options.ts'
import { renewedSettings, settingsPage } from './settings-page.ts'

const STARLING = fileURLToPath(new URL('../../bin/starling.mjs', import.meta.url))
let folder = ''
before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'starling-settings-'))
})
after(() => rm(folder, { recursive: true }))

async function written(content: string, mode = 0o600): Promise<string> {
  const file = join(folder, 'settings.yaml')
  await writeFile(file, content)
  await chmod(file, mode)
  return file
}

function command(): Command {
  const program = new Command('try')
    .option('--port <port>', 'a port', readPort, 8790)
    .option('--data-dir <folder>', 'a folder', 'data')
    .option('--lan', 'on or off')
    .option('--ice-server <url...>', 'a list')
    .addOption(new Option('--metrics <who>', 'one of three').choices(['local', 'token', 'public']).default('local'))
    .addOption(new Option('--token <token>', 'a secret'))
    .addOption(new Option('--token-file <file>', 'its file').conflicts('token'))
    .addOption(httpsOption())
    .exitOverride()
  return withSettings(program)
}

async function settings(argv: readonly string[], env: NodeJS.ProcessEnv = {}) {
  const program = command().parse([...argv], { from: 'user' })
  const { printed, warnings } = await completeSettings(program, { secrets: ['token'] }, env)
  return { values: program.opts<Record<string, unknown>>(), printed, warnings }
}

async function refusal(argv: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<string> {
  const error: unknown = await settings(argv, env).then(
    () => assert.fail('it was taken'),
    (thrown: unknown) => thrown,
  )
  assert.ok(isGridError(error) && error.code === 'usage', String(error))
  return error.message.replaceAll(folder, '')
}

test('an option counts before the environment, that before the file, and the file before the default', async () => {
  const file = await written('port: 1\ndataDir: from-file\nlan: true\niceServer: [stun:a, stun:b]\n')
  const env = { STARLING_PORT: '2', STARLING_DATA_DIR: 'from-environment', STARLING_CONFIG: file }
  const { values } = await settings(['--config', file, '--port', '3'], env)
  assert.deepEqual(
    [values['port'], values['dataDir'], values['lan'], values['iceServer'], values['metrics']],
    [3, 'from-environment', true, ['stun:a', 'stun:b'], 'local'],
  )
  const fromFile = await settings(['--config', file])
  assert.deepEqual([fromFile.values['port'], fromFile.values['dataDir']], [1, 'from-file'])
})

test('the environment says yes, no, lists and optional values', async () => {
  const { values } = await settings([], {
    STARLING_LAN: 'false',
    STARLING_ICE_SERVER: 'stun:a, stun:b',
    STARLING_HTTPS: 'true',
  })
  assert.deepEqual([values['lan'], values['iceServer'], values['https']], [false, ['stun:a', 'stun:b'], 8443])
  assert.equal((await settings([], { STARLING_HTTPS: '9000' })).values['https'], 9000)
})

test('every mistake of a file is told at once, with its line, what was expected, and a near miss', async () => {
  const file = await written('# a comment\nprot: 1\nmetrics: pubic\nport: many\nlan: "yes"\ntimes: 3\n')
  assert.deepEqual((await refusal(['--config', file])).split('\n'), [
    '/settings.yaml:2:1: prot: expected a known setting, got "prot"; did you mean `port`?',
    '/settings.yaml:3:1: metrics: expected one of local, token, public, got "pubic"; did you mean `public`?',
    '/settings.yaml:4:1: port: expected a whole number from 0 to 65535, got "many"',
    '/settings.yaml:5:1: lan: expected true or false, got "yes"',
    '/settings.yaml:6:1: times: expected a known setting, got "times"; `--help` names them all',
  ])
  assert.match(await refusal(['--config', await written('- port')]), /settings\.yaml:1:1: expected settings by name/)
  assert.match(await refusal(['--config', await written('port: [')]), /settings\.yaml:1:\d+: expected YAML or JSON/)
  assert.match(await refusal(['--config', join(folder, 'nowhere.yaml')]), /expected a file with settings, got/)
})

test('a wrong variable is named with what was expected, and one that is almost a setting warns', async () => {
  assert.equal(
    await refusal([], { STARLING_PORT: 'x' }),
    'STARLING_PORT: expected a whole number from 0 to 65535, got "x"; correct the variable',
  )
  assert.match(await refusal([], { STARLING_LAN: 'maybe' }), /^STARLING_LAN: expected true or false, got "maybe"/)
  const { warnings } = await settings([], { STARLING_PROT: '1', STARLING_SEEDS: '4', HOME: '/' })
  assert.deepEqual(warnings, [
    'Warning: STARLING_PROT in the environment is no setting of this command; did you mean STARLING_PORT?',
  ])
})

test('a file that holds a secret is refused while other users can read it', async () => {
  assert.match(
    await refusal(['--config', await written('token: a-token-of-an-owner\n', 0o644)]),
    /readable by one user alone, because it has `token`, got mode 644; run `chmod 600/,
  )
  const { values } = await settings(['--config', await written('token: a-token-of-an-owner\n')])
  assert.equal(values['token'], 'a-token-of-an-owner')
})

test('two settings that exclude each other are refused wherever they stand', async () => {
  const file = await written('token: a-token-of-an-owner\n')
  assert.match(
    await refusal(['--config', file], { STARLING_TOKEN_FILE: 'kept' }),
    /one of `tokenFile` \(STARLING_TOKEN_FILE\) and `token` \(.*settings\.yaml:1\), got both/,
  )
})

test('--print-config says where each setting comes from, hides secrets, and is a file for --config', async () => {
  const file = await written('dataDir: kept\ntoken: a-token-of-an-owner\n')
  const { printed = '' } = await settings(['--config', file, '--port', '3', '--print-config'], { STARLING_LAN: '1' })
  const lines = printed.replaceAll(/ {2,}/g, '  ').split('\n')
  assert.deepEqual(lines.slice(0, 3), [
    'port: 3  # command line',
    `dataDir: "kept"  # ${file}:1`,
    'lan: true  # STARLING_LAN',
  ])
  assert.ok(lines.includes('metrics: "local"  # default'), printed)
  assert.ok(lines.includes(`# token: hidden  # ${file}:2`), printed)
  assert.equal(printed.includes('a-token-of-an-owner'), false)
  const again = await settings(['--config', await written(printed)])
  assert.deepEqual([again.values['port'], again.values['lan']], [3, true])
  assert.deepEqual(parse(printed), { port: 3, dataDir: 'kept', lan: true, metrics: 'local' })
})

test('a file of JSON is read as one of YAML is', async () => {
  const { values } = await settings(['--config', await written('{"port": 7, "iceServer": ["stun:a"], "lan": true}')])
  assert.deepEqual([values['port'], values['iceServer'], values['lan']], [7, ['stun:a'], true])
})

test('docs/SETTINGS.md has each setting of the commands as it is now', () => {
  assert.equal(settingsPage(), renewedSettings(), 'run `npm run docs`')
})

test('starling start and starling volunteer read a file, print what is in force, and end', async () => {
  const file = await written('dataRoot: /srv/data\nmetrics: token\nrelayQuota: 2.5\nhttps: true\n')
  const { options } = await startSettings(['--config', file])
  assert.deepEqual(
    [options.dataRoot, options.metrics, options.relayQuota, options.https],
    ['/srv/data', 'token', 2.5, 8443],
  )
  const print = async (args: readonly string[], env: NodeJS.ProcessEnv = {}) => {
    const child = spawn(process.execPath, [STARLING, ...args, '--print-config'], {
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const [out, [code]] = await Promise.all([text(child.stdout), once(child, 'close')])
    assert.equal(code, 0)
    return out
  }
  const started = await print(['start', '--config', file], { STARLING_STATE: 'postgres://me:hush@host/starling' })
  assert.match(started, /^# state: hidden +# STARLING_STATE$/m)
  assert.match(started, /^relayQuota: 2\.5 +# .*settings\.yaml:3$/m)
  assert.equal(started.includes('hush'), false)
  const lent = await print(['volunteer'], { STARLING_URL: 'https://grid.example.org', STARLING_MAX_MEMORY: '2GB' })
  assert.match(lent, /^url: "https:\/\/grid\.example\.org" +# STARLING_URL$/m)
  assert.match(lent, /^maxMemory: 2000000000 +# STARLING_MAX_MEMORY$/m)
  // The test runner chose a driver, as a command does for its volunteers; no owner asked for an adapter.
  assert.ok(process.env[ADAPTER_CHOICE])
  assert.match(lent, /^# adapter: not set/m)
})
