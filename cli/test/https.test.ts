// `starling start --https`: what people on other machines of a network meet. This machine plays them, at its own
// address on that network, where browsers are as strict as they are with strangers.
import assert from 'node:assert/strict'
import { chmod, mkdtemp, rm, stat, writeFile } from 'node:fs/promises'
import { request as httpsRequest } from 'node:https'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import { connect as tlsConnect, type TLSSocket } from 'node:tls'
import { launchBrowser } from '@starling-grid/client-node'
import { ensureWebPage } from '@starling-grid/client-web/build'
import { addressesOfThisMachine, certificateOf } from '../src/certificate.ts'
import { demoJob } from '../src/demo-job.ts'
import { Grid, type HttpsDoor } from '../src/grid/grid.ts'
import { startChild, stopChild } from '../src/grid/processes.ts'
import { otherMachines } from '../src/other-machines.ts'

/** Its few kernels are compiled soon: what passes the door is the same for every model. */
const LINEAR = {
  name: 'linear',
  input: [1, 28, 28],
  layers: [{ type: 'flatten' }, { type: 'linear', name: 'fc', out: 10 }],
}

const address = addressesOfThisMachine()[0]
const skip = address === undefined && 'this machine has no address on a network'

const folder = await mkdtemp(join(tmpdir(), 'starling-https-'))
after(() => rm(folder, { recursive: true, force: true }))

function urlOf(port: number): string {
  return `https://${address?.includes(':') ? `[${address}]` : address}:${port}`
}

function doorOf({ https }: Grid): HttpsDoor {
  assert.ok(https)
  return https
}

describe('the https door', { skip, timeout: 300_000 }, () => {
  test('a tab and a Node volunteer of another machine train together through it', async () => {
    const grid = await Grid.start({ https: 0, webRoot: await ensureWebPage(() => undefined) })
    const browser = await launchBrowser()
    try {
      const { port, fingerprint } = doorOf(grid)
      const url = urlOf(port)
      await grid.submit({
        ...demoJob({ stop: { epochs: 1, steps: 12 }, seed: 3, mode: 'ring', minVolunteers: 2 }),
        blockSamples: 4,
        model: LINEAR,
      })
      const volunteer = startChild({
        name: 'elsewhere',
        args: ['volunteer', url, '--fingerprint', fingerprint, '--executor', 'reference', '--once'],
      })
      // a person's "go on" at the browser's warning
      const page = await (await browser.newContext({ ignoreHTTPSErrors: true })).newPage()
      await page.goto(`${url}/?executor=wasm`)
      assert.equal(await page.evaluate(() => isSecureContext && 'gpu' in navigator), true)
      await page.locator('button[data-primary]').click()
      const run = await grid.watch.waitFor('the last step', ({ run }) => run?.phase === 'finished' && run)
      assert.deepEqual([run.checkpoint?.agreeing, run.checkpoint?.members], [2, 2])
      assert.equal(await volunteer.ended, 0, volunteer.lines.join('\n'))
    } finally {
      await browser.close()
      await grid.stop()
    }
  })

  test('a volunteer without the fingerprint, or with another, ends with a sentence that says what to do', async () => {
    const grid = await Grid.start({ https: 0 })
    try {
      const { port, fingerprint } = doorOf(grid)
      const url = urlOf(port)
      const other = fingerprint.replace(/^../, fingerprint.startsWith('00') ? '11' : '00')
      const wrong = startChild({ name: 'wrong', args: ['volunteer', url, '--fingerprint', other] })
      assert.equal(await wrong.ended, 2)
      assert.match(wrong.lines.join('\n'), new RegExp(`expected the certificate ${other} .*got ${fingerprint}`))
      let told: (line: string) => void = () => undefined
      const advice = new Promise<string>((resolve) => {
        told = resolve
      })
      const onLine = (line: string): void => void (line.includes('--fingerprint') && told(line))
      const without = startChild({ name: 'without', args: ['volunteer', url], onLine })
      const said = await advice
      without.kill()
      assert.match(said, /self-signed certificate; start the volunteer with --fingerprint/)
    } finally {
      await grid.stop()
    }
  })

  test('threat 22: an address that opens connections and never shakes hands is bounded, and others go on', async () => {
    const grid = await Grid.start({ https: 0 })
    try {
      const { port } = doorOf(grid)
      const mute = Array.from({ length: 80 }, () => connect(port, address))
      const closed = mute.map((socket) => new Promise<void>((resolve) => socket.once('close', () => resolve())))
      await Promise.race(closed) // above the bound
      assert.equal((await fetch(`${grid.url}/healthz`)).status, 200)
      for (const socket of mute) socket.destroy()
      await Promise.all(closed)
      const shaken = tlsConnect({ port, host: address, rejectUnauthorized: false })
      await new Promise<void>((resolve, reject) => {
        shaken.once('secureConnect', resolve)
        shaken.once('error', reject)
      })
      shaken.destroy()
    } finally {
      await grid.stop()
    }
  })
})

/** Of another machine, at an address that a command printed: of its certificate the fingerprint alone is believed. */
function statusAt(url: string, fingerprint: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const asked = httpsRequest(`${url}healthz`, { rejectUnauthorized: false }, (response) => {
      const { fingerprint256 } = (response.socket as TLSSocket).getPeerCertificate()
      response.resume()
      if (fingerprint256 === fingerprint) resolve(response.statusCode ?? 0)
      else reject(new Error(`expected ${fingerprint}, got ${fingerprint256}`))
    })
    asked.once('error', reject)
    asked.end()
  })
}

/** The lines of a command up to one that matches. */
function printedUpTo(last: RegExp, args: readonly string[]) {
  const lines: string[] = []
  let told: (value: undefined) => void = () => undefined
  const printed = new Promise<undefined>((resolve) => {
    told = resolve
  })
  const child = startChild({
    name: args.join(' '),
    args,
    onLine: (line) => {
      lines.push(line)
      if (last.test(line)) told(undefined)
    },
  })
  const early = child.ended.then((code) => assert.fail(`ended with ${code}: ${lines.join('\n')}`))
  return { child, lines: Promise.race([printed, early]).then(() => lines.join('\n')) }
}

describe('next steps for other machines', { skip, timeout: 300_000 }, () => {
  const job = join(folder, 'job.yaml')
  const commands: Readonly<Record<string, readonly string[]>> = {
    start: ['start', '--data-dir', join(folder, 'start'), '--web-root', folder],
    demo: ['demo', '--volunteers', '0'],
    train: ['train', job, '--data-dir', join(folder, 'train'), '--executor', 'reference'],
  }
  for (const [name, args] of Object.entries(commands))
    test(`starling ${name} --https prints an address and a fingerprint that hold from another machine`, async () => {
      await writeFile(job, JSON.stringify(demoJob({ stop: { epochs: 50 }, seed: 1, mode: 'ring' })))
      const { child, lines } = printedUpTo(/go on\.$/, [...args, '--port', '0', '--https', '0'])
      try {
        const text = await lines
        const [, url = ''] = /take part with a browser: +(https:\S+)/.exec(text) ?? []
        const [, fingerprint = ''] = /SHA-256 (\S+)/.exec(text) ?? []
        assert.ok(text.includes(`volunteer -- ${new URL(url).origin} --fingerprint ${fingerprint}`), text)
        assert.equal(await statusAt(url, fingerprint), 200)
        // Others reach the dashboard, too: the owner's link has the token.
        assert.equal(/dashboard#token=[0-9a-f]{32}/.test(text), true)
      } finally {
        await stopChild(child)
      }
    })

  test('starling demo --host prints an http address that answers, and says what browsers need', async () => {
    const { child, lines } = printedUpTo(/--https for one/, [
      'demo',
      '--volunteers',
      '0',
      '--port',
      '0',
      '--host',
      '::',
    ])
    try {
      const [, url = ''] = /npm run volunteer -- (http:\/\/(?!localhost)\S+)/.exec(await lines) ?? []
      assert.equal((await fetch(`${url}/healthz`)).status, 200)
    } finally {
      await stopChild(child)
    }
  })
})

test('behind a proxy people get its address, and a coordinator for this machine alone names none', async () => {
  const http = { host: '127.0.0.1', port: 8790 }
  assert.deepEqual(await otherMachines(http), [])
  const lines = await otherMachines({ ...http, publicUrl: new URL('https://grid.example.org/') })
  assert.deepEqual(lines.slice(0, 4), [
    '',
    'From other machines',
    '  take part with a browser:   https://grid.example.org/',
    '  take part with Node:        npm run volunteer -- https://grid.example.org',
  ])
})

test('the certificate that a start makes is kept, with a key that others cannot read', async () => {
  const first = await certificateOf(folder, {})
  const second = await certificateOf(folder, {})
  assert.deepEqual([first.isNew, second.isNew], [true, false])
  assert.equal(first.fingerprint, second.fingerprint)
  assert.equal((await stat(join(folder, 'https-key.pem'))).mode & 0o077, 0)
  await chmod(join(folder, 'https-key.pem'), 0o644) // as a backup may have restored it
  await certificateOf(folder, {})
  assert.equal((await stat(join(folder, 'https-key.pem'))).mode & 0o077, 0)
})

test('a certificate and a key that do not belong together are one clear sentence', async () => {
  const other = join(folder, 'other')
  await certificateOf(folder, {})
  await certificateOf(other, {})
  const files = { cert: join(folder, 'https-certificate.pem'), key: join(other, 'https-key.pem') }
  await assert.rejects(certificateOf(folder, files), /expected a certificate in .* and its key .*belong together/)
  await assert.rejects(certificateOf(folder, { cert: files.cert }), /--cert and --key together/)
})
