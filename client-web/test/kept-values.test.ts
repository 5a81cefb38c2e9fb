// What a tab keeps, in a real browser: two tabs of one visitor, a visit after it, and a browser without storage.
import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'
import type { Browser, BrowserContext, Page } from 'playwright-core'
import { launchBrowser } from './browser.ts'

type Kept = typeof import('../src/kept-values.ts')
declare const kept: Kept

const server = createServer((_, response) => response.setHeader('content-type', 'text/html').end('<!doctype html>'))
let browser: Browser
let script: string

before(async () => {
  const entryPoints = [fileURLToPath(new URL('../src/kept-values.ts', import.meta.url))]
  const { outputFiles } = await build({ entryPoints, bundle: true, format: 'iife', globalName: 'kept', write: false })
  script = outputFiles[0]?.text ?? ''
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  browser = await launchBrowser()
})
after(async () => {
  await browser.close()
  server.close()
})

async function tab(context: BrowserContext): Promise<Page> {
  const page = await context.newPage()
  await page.goto(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`)
  await page.addScriptTag({ content: script })
  return page
}

test('of two tabs that make a value at once both get the one that was first, and so does a later visit', async () => {
  const context = await browser.newContext()
  const tabs = await Promise.all([tab(context), tab(context)])
  const got = await Promise.all(tabs.map((page, i) => page.evaluate((n) => kept.keepFirst('id', `made by ${n}`), i)))
  assert.equal(got[0], got[1])
  for (const page of tabs) await page.close()
  const later = await tab(context)
  assert.equal(await later.evaluate(() => kept.readKept('id')), got[0])
  assert.equal(await later.evaluate(() => kept.keepFirst('id', 'too late')), got[0])
  assert.equal(
    await later.evaluate(() => kept.keepChanged('id', () => 'changed').then(() => kept.readKept('id'))),
    'changed',
  )
  await context.close()
})

test('a key that no script can read is kept as it is, and signs in the next visit', async () => {
  const context = await browser.newContext()
  const first = await tab(context)
  await first.evaluate(async () => {
    const pair = await crypto.subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-256' }, false, ['sign', 'verify'])
    await kept.keepFirst('key', pair)
  })
  await first.close()
  const [isReadable, bytes] = await (
    await tab(context)
  ).evaluate(async () => {
    const pair = await kept.readKept<CryptoKeyPair>('key')
    if (pair === undefined) return [undefined, 0]
    const signed = await crypto.subtle.sign({ name: 'ECDSA', hash: 'SHA-256' }, pair.privateKey, new Uint8Array(8))
    return [pair.privateKey.extractable, signed.byteLength]
  })
  assert.deepEqual([isReadable, bytes], [false, 64])
  await context.close()
})

test('a browser that gives no storage keeps nothing, and every caller goes on with its own value', async () => {
  const context = await browser.newContext()
  await context.addInitScript(() => {
    Object.defineProperty(globalThis, 'indexedDB', {
      get: () => {
        throw new DOMException('storage is off', 'SecurityError')
      },
    })
  })
  const page = await tab(context)
  assert.equal(await page.evaluate(() => kept.keepFirst('id', 'mine')), 'mine')
  assert.equal(
    await page.evaluate(() => kept.keepChanged('id', () => 'mine').then(() => kept.readKept('id'))),
    undefined,
  )
  await context.close()
})
