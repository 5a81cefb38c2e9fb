// The whole list of what ends a volunteer (volunteer/src/fatal.ts), against real volunteers and a real coordinator.
// Every code of the table either ends one, with a sentence that says what to do, or it goes on by itself.
import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { type Coordinator, createCoordinator } from '@starling-grid/coordinator'
import {
  encode,
  ERROR_CODES,
  type ErrorCode,
  GridError,
  type JobList,
  type Requirements,
  ROUTES,
} from '@starling-grid/protocol'
import { FATAL } from '@starling-grid/volunteer/testing'
import { type Life, live } from './lone-volunteer.ts'
import { smallJob } from './small-job.ts'

const CODES = Object.keys(ERROR_CODES) as ErrorCode[]
/** volunteers that live at once */
const AT_ONCE = 12

let coordinator: Coordinator
let dataDir: string
before(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'starling-'))
  coordinator = createCoordinator({ dataDir, token: 'the-owner-token-of-tests', port: 0 })
  await coordinator.start()
  await coordinator.runs.submit(smallJob({ stop: { steps: 10 }, minVolunteers: 200 }))
})
after(async () => {
  await coordinator.stop()
  await rm(dataDir, { recursive: true, force: true })
})

/** Ends with this code, and says what to do. */
async function endsWith(code: ErrorCode, { ended, statuses }: Life): Promise<void> {
  const error = await ended
  assert.ok(error instanceof GridError, String(error))
  assert.equal(error.code, code)
  assert.ok(error.message.includes(`What to do: ${FATAL[code]}`), error.message)
  // statuses are paced
  while (statuses.at(-1)?.phase !== 'failed') await new Promise((resolve) => setTimeout(resolve, 20))
}

/** It waits for another job: asking for the same one again would be refused again. */
async function staysWithout({ ended, statuses, stop }: Life): Promise<void> {
  while (!statuses.some(({ detail }) => detail.includes('waits for another job')))
    await new Promise((resolve) => setTimeout(resolve, 10))
  await stop()
  assert.equal(await ended, undefined)
}

async function eachOf(codes: readonly ErrorCode[], check: (code: ErrorCode) => Promise<void>): Promise<void> {
  for (let at = 0; at < codes.length; at += AT_ONCE) await Promise.all(codes.slice(at, at + AT_ONCE).map(check))
}

test(
  'a volunteer that cannot prepare ends with a fatal code, and tries again after any other',
  { timeout: 240_000 },
  async () => {
    await eachOf(CODES, async (code) => {
      let made = 0
      let again: () => void = () => undefined
      const second = new Promise<void>((resolve) => {
        again = resolve
      })
      const life = live(coordinator.url, (host) => ({
        createExecutor: async (...asked) => {
          if (++made === 1) throw new GridError(code, 'made up by the test.')
          again()
          return host.createExecutor(...asked)
        },
      }))
      if (code in FATAL) return endsWith(code, life)
      if (code === 'own-limit' || code === 'no-f16' || code === 'requirement-unmet') return staysWithout(life)
      const first = await Promise.race([second, life.ended.then((error) => error ?? 'stopped')])
      assert.equal(first, undefined, `${code} is no reason to end`)
      await life.stop()
      assert.equal(await life.ended, undefined)
    })
  },
)

test(
  'a volunteer that is expelled with a fatal code ends, and returns after any other',
  { timeout: 240_000 },
  async () => {
    await eachOf(CODES, async (code) => {
      let welcomes = 0
      let back: () => void = () => undefined
      const second = new Promise<void>((resolve) => {
        back = resolve
      })
      const life = live(coordinator.url, (host) => ({
        dialCoordinator: async (path) => {
          const socket = await host.dialCoordinator(path)
          return {
            get onMessage() {
              return socket.onMessage
            },
            set onMessage(listener) {
              socket.onMessage =
                listener &&
                ((text) => {
                  listener(text)
                  if (!text.includes('"type":"welcome"')) return
                  if (++welcomes === 1)
                    listener(encode({ type: 'refused', code, message: 'made up by the test.', fatal: true }))
                  else back()
                })
            },
            send: (text: string) => socket.send(text),
            close: () => socket.close(),
            get onClose() {
              return socket.onClose
            },
            set onClose(listener) {
              socket.onClose = listener
            },
          }
        },
      }))
      if (code in FATAL) return endsWith(code, life)
      const first = await Promise.race([second, life.ended.then((error) => error ?? 'stopped')])
      assert.equal(first, undefined, `${code} is no reason to end: ${String(first)}`)
      await life.stop()
    })
  },
)

/** A coordinator that has no job but one that a volunteer without an adapter cannot compute. */
async function withJobRequiring(requires: Requirements, check: (url: string) => Promise<void>): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'starling-'))
  const other = createCoordinator({ dataDir: folder, token: 'the-owner-token-of-tests', port: 0 })
  try {
    await other.start()
    await other.runs.submit({
      ...smallJob({ stop: { steps: 10 }, minVolunteers: 1 }),
      requires,
    })
    await check(other.url)
  } finally {
    await other.stop()
    await rm(folder, { recursive: true, force: true })
  }
}

test('a volunteer without the GPU that a job requires leaves it, and says why', { timeout: 120_000 }, () =>
  withJobRequiring({ realGpu: true }, async (url) => {
    const life = live(url, () => ({}))
    await staysWithout(life)
    const said = life.statuses.map(({ detail }) => detail)
    assert.ok(
      said.some((detail) => detail.includes('expected a real GPU, which the job requires')),
      said.join(' | '),
    )
  }),
)

test('a volunteer without shader-f16 leaves a job that requires it, and the job says so', { timeout: 120_000 }, () =>
  withJobRequiring({ f16: true }, async (url) => {
    const life = live(url, () => ({}))
    const headers = { authorization: 'Bearer the-owner-token-of-tests' }
    const reason = async (): Promise<string> => {
      const { jobs } = (await (await fetch(`${url}${ROUTES.jobs}`, { headers })).json()) as JobList
      return jobs[0]?.reason ?? ''
    }
    while (!(await reason()).endsWith('1 lacks what it requires: shader-f16')) await delay(20)
    await staysWithout(life)
    const said = life.statuses.map(({ detail }) => detail)
    assert.ok(
      said.some((detail) => detail.includes('expected an adapter with shader-f16, which the job requires')),
      said.join(' | '),
    )
  }),
)
