import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import { after, before, test } from 'node:test'
import { findChromium, launchBrowser } from '@starling-grid/client-node'
import { describeError } from '@starling-grid/protocol'
import type { Browser, Page } from 'playwright-core'

// An empty page on localhost, which is a secure context: WebGPU exists nowhere else.
const server = createServer((_request, response) =>
  response.setHeader('content-type', 'text/html').end('<!doctype html><p>text'),
)
let browser: Browser
// Says why these tests did not run where there is no browser.
const skip = await findChromium().then(() => false, describeError)

before(async () => {
  if (skip) return
  await new Promise<void>((resolve) => server.listen(0, 'localhost', resolve))
  browser = await launchBrowser()
})
after(async () => {
  await browser?.close()
  server.close()
})

test('a page and its workers find a WebGPU adapter', { skip }, async () => {
  const page = await emptyPage(browser)
  assert.equal(await page.evaluate(async () => (await navigator.gpu.requestAdapter())?.info.vendor), 'google')
  assert.equal(
    await page.evaluate(
      workerSays,
      'navigator.gpu.requestAdapter().then((adapter) => postMessage(adapter.info.vendor))',
    ),
    'google',
  )
})

test('a data channel opens between two peers of a page', { skip }, async () => {
  const page = await emptyPage(browser)
  assert.equal(await page.evaluate(openChannel), 'open')
})

test('text has glyphs', { skip }, async () => {
  const page = await emptyPage(browser)
  // A font without glyphs draws the same box for each character.
  assert.notEqual(await page.evaluate(widthOf, 'iiii'), await page.evaluate(widthOf, 'WWWW'))
})

test('a browser without a GPU can be had too', { skip }, async () => {
  const without = await launchBrowser({ gpu: false })
  try {
    const page = await emptyPage(without)
    assert.equal(await page.evaluate(async () => (await navigator.gpu?.requestAdapter()) ?? null), null)
  } finally {
    await without.close()
  }
})

async function emptyPage(of: Browser): Promise<Page> {
  const page = await of.newPage()
  const address = server.address()
  assert.ok(typeof address === 'object' && address !== null)
  await page.goto(`http://localhost:${address.port}/`)
  return page
}

// What follows runs in the page.

function workerSays(code: string): Promise<unknown> {
  const worker = new Worker(URL.createObjectURL(new Blob([code])))
  return new Promise((resolve, reject) => {
    worker.onmessage = (event) => resolve(event.data)
    worker.onerror = (event) => reject(new Error(event.message))
  })
}

async function openChannel(): Promise<string> {
  const [here, there] = [new RTCPeerConnection(), new RTCPeerConnection()]
  here.onicecandidate = ({ candidate }) => void (candidate && there.addIceCandidate(candidate))
  there.onicecandidate = ({ candidate }) => void (candidate && here.addIceCandidate(candidate))
  const channel = here.createDataChannel('test')
  const opened = new Promise((resolve) => channel.addEventListener('open', resolve))
  const offer = await here.createOffer()
  await here.setLocalDescription(offer)
  await there.setRemoteDescription(offer)
  const answer = await there.createAnswer()
  await there.setLocalDescription(answer)
  await here.setRemoteDescription(answer)
  await opened
  return channel.readyState
}

function widthOf(text: string): number {
  const span = document.createElement('span')
  span.textContent = text
  document.body.append(span)
  return span.getBoundingClientRect().width
}
