import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Grid } from '@starling-grid/cli'
import { launchBrowser } from '@starling-grid/client-node'
import { ensureWebPage } from '@starling-grid/client-web/build'
import { finishesWhole, lightJob, QUICK } from './small-job.ts'

const STEPS = 30

test(
  'threat 4: a tab on WebAssembly and Node on WebGPU and the reference end bit-identical; no address has a token',
  { timeout: 300_000 },
  async () => {
    const grid = await Grid.start({ timing: QUICK, webRoot: await ensureWebPage(() => undefined) })
    const browser = await launchBrowser()
    try {
      const job = await grid.submit(lightJob({ stop: { steps: STEPS }, minVolunteers: 3 }))
      grid.addVolunteer({ executor: 'webgpu' })
      grid.addVolunteer({ executor: 'reference' })
      const page = await browser.newPage()
      const problems: string[] = []
      page.on('console', (message) => message.type() === 'error' && problems.push(message.text()))
      page.on('pageerror', (error) => problems.push(error.message))
      const addresses: string[] = []
      page.on('websocket', (socket) => addresses.push(socket.url()))
      await page.goto(`${grid.url}/?executor=wasm`)
      assert.equal(await page.evaluate(() => crossOriginIsolated), true, 'threads of the tab share memory')
      await page.locator('button[data-primary]').click()
      await page.getByText(/WebAssembly on the processor, \d+ threads?/).waitFor()
      const ring = await grid.watch.waitFor(
        'a ring of three',
        ({ run }) =>
          run?.phase === 'ring' && run.members.filter((member) => member.rank !== null).length === 3 && run.members,
      )
      assert.deepEqual(new Set(ring.map((member) => member.client)), new Set(['tab', 'node']))
      assert.deepEqual(
        new Set(ring.map((member) => member.adapter?.executor)),
        new Set(['wasm', 'webgpu', 'reference']),
      )
      const run = await finishesWhole(grid, job, STEPS)
      assert.equal(run.checkpoint?.members, 3)
      assert.deepEqual(problems, [])
      assert.ok(addresses.some((address) => address.includes('/signalling/peerjs')))
      assert.deepEqual(
        addresses.filter((address) => address.includes('token')),
        [],
      )
    } finally {
      await browser.close()
      await grid.stop()
    }
  },
)
