// `starling start --https`: what people on other machines of a network meet. This machine plays them, at its own
// address on that network, where browsers are as strict as they are with strangers.
import assert from 'node:assert/strict'
import { chmod, mkdtemp, rm, stat } from 'node:fs/promises'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import { connect as tlsConnect } from 'node:tls'
import { launchBrowser } from '@starling-grid/client-node'
import { ensureWebPage } from '@starling-grid/client-web/build'
import { addressesOfThisMachine, certificateOf } from '../src/certificate.ts'
import { demoJob } from '../src/demo-job.ts'
import { Grid, type HttpsDoor } from '../src/grid/grid.ts'
import { startChild } from '../src/grid/processes.ts'
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
