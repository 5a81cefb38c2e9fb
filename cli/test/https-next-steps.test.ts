// What `starling start`, `demo` and `train` print for people on other machines of a network. This machine plays them,
// at its own address on that network.
import assert from 'node:assert/strict'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { request as httpsRequest } from 'node:https'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import type { TLSSocket } from 'node:tls'
import { addressesOfThisMachine } from '../src/certificate.ts'
import { demoJob } from '../src/demo-job.ts'
import { startChild, stopChild } from '../src/grid/processes.ts'

const skip = addressesOfThisMachine().length === 0 && 'this machine has no address on a network'

const folder = await mkdtemp(join(tmpdir(), 'starling-https-'))
after(() => rm(folder, { recursive: true, force: true }))

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
