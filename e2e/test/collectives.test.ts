// Collectives over real WebRTC: the suite of volunteer/testing between processes and between tabs, and a process that
// is killed.
import assert from 'node:assert/strict'
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { launchBrowser, startLocalGroup, startLocalSignalling } from '@starling-grid/client-node'
import { newMemberId } from '@starling-grid/protocol'
import { communicatorCases } from '@starling-grid/volunteer/testing'
import type { Browser } from 'playwright-core'
import { build } from 'vite'
import type {} from './group-peer-page.ts'
import type { GroupAnswer, GroupOrder } from './group-peer-process.ts'

const PROGRAM = fileURLToPath(new URL('group-peer-process.ts', import.meta.url))

async function tell(child: ChildProcess, order: GroupOrder): Promise<GroupAnswer> {
  const over = new AbortController()
  const { signal } = over
  const ended = once(child, 'exit', { signal }).then(([code, name]) =>
    Promise.reject(new Error(`the process ended with ${code ?? name}`)),
  )
  try {
    child.send(order)
    const [answer] = (await Promise.race([once(child, 'message', { signal }), ended])) as [GroupAnswer]
    assert.equal(answer.error, undefined)
    return answer
  } finally {
    ended.catch(() => {}) // no caller waits for it now
    over.abort()
  }
}

for (const size of [2, 3, 4])
  test(`collectives of ${size} processes`, async (t) => {
    const { processes, ended } = await startLocalGroup({ size, file: PROGRAM })
    t.after(() => processes.forEach((child) => child.kill('SIGKILL')))
    for (const { name } of communicatorCases)
      await t.test(
        name,
        async () => void (await Promise.all(processes.map((child) => tell(child, { type: 'case', name })))),
      )
    await Promise.all(processes.map((child) => tell(child, { type: 'leave' })))
    await ended // by themselves
  })

test('a process that is killed in the middle is named on all others', async (t) => {
  const { processes, ended } = await startLocalGroup({ size: 4, file: PROGRAM })
  t.after(() => processes.forEach((child) => child.kill('SIGKILL')))
  const [barrier] = communicatorCases.filter(({ name }) => name.includes('barrier'))
  await Promise.all(processes.map((child) => tell(child, { type: 'case', name: barrier?.name ?? '' })))
  const survivors = [0, 1, 3].flatMap((rank) => processes[rank] ?? [])
  const answers = survivors.map((child) => tell(child, { type: 'endless' }))
  const victim = processes[2]
  victim?.send({ type: 'endless' })
  const begun = performance.now()
  victim?.kill('SIGKILL')
  for (const { blamed } of await Promise.all(answers)) assert.equal(blamed, 2)
  t.diagnostic(`noticed everywhere after ${((performance.now() - begun) / 1000).toFixed(1)} s`)
  await Promise.all(survivors.map((child) => tell(child, { type: 'leave' })))
  await assert.rejects(ended, /SIGKILL of rank 2/)
})

test('collectives of two tabs', async (t) => {
  let reason = ''
  const browser = await launchBrowser({ gpu: false }).catch((error: Error) => {
    reason = error.message
  })
  if (browser === undefined) return t.skip(reason)
  const page = await servePage()
  const signalling = await startLocalSignalling()
  t.after(async () => {
    await browser.close()
    signalling.stop()
    page.stop()
  })
  const members = [newMemberId(), newMemberId()]
  const tabs = await Promise.all(members.map(() => openTab(browser, page.url)))
  await Promise.all(
    tabs.map((tab, rank) =>
      tab.evaluate(([access, all]) => window.openGroup(access, all), [
        signalling.access(members[rank] ?? newMemberId()),
        members,
      ] as const),
    ),
  )
  for (const { name } of communicatorCases)
    await t.test(
      name,
      async () => void (await Promise.all(tabs.map((tab) => tab.evaluate((one) => window.runCase(one), name)))),
    )
  await Promise.all(tabs.map((tab) => tab.evaluate(() => window.closeGroup())))
})

/** In a context of its own: tabs of one context share timers that a hidden one slows down. */
async function openTab(browser: Browser, url: string) {
  const tab = await (await browser.newContext()).newPage()
  await tab.goto(url)
  await tab.waitForFunction(() => 'openGroup' in window)
  return tab
}

async function servePage(): Promise<{ readonly url: string; stop(): void }> {
  const entry = fileURLToPath(new URL('group-peer-page.ts', import.meta.url))
  const [built] = [
    await build({
      configFile: false,
      logLevel: 'error',
      build: {
        write: false,
        minify: false,
        lib: { entry, formats: ['es'] },
        rolldownOptions: { output: { codeSplitting: false } }, // one file is served
      },
    }),
  ].flat()
  if (built === undefined || !('output' in built)) throw new Error('internal: vite built nothing')
  const script = built.output[0].code
  const server = createServer(({ url }, response) => {
    const isScript = url === '/page.js'
    response.setHeader('content-type', isScript ? 'text/javascript' : 'text/html')
    response.end(
      isScript ? script : '<!doctype html><title>a rank</title><script type="module" src="/page.js"></script>',
    )
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`, stop: () => server.close() }
}
