// A real volunteer comes back to a coordinator that started again and has no job for a moment. The volunteer's session
// ends in the middle of a step. What fails with that session was sent on the new socket, before `ready`, and refused.
import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { createCoordinator } from '@starling-grid/coordinator'
import { GridError } from '@starling-grid/protocol'
import type { CoordinatorSocket, Executor, VolunteerHost } from '@starling-grid/volunteer'
import { live } from './lone-volunteer.ts'
import { smallJob } from './small-job.ts'

interface Said {
  readonly type: string
  readonly [field: string]: unknown
}

/** The coordinator's second WELCOME names no job; the job follows in a message of its own. */
class Line {
  sent: Said[] = []
  readonly refused: Said[] = []
  #welcomes = 0
  #socket: CoordinatorSocket | undefined

  readonly dial = async (host: VolunteerHost, path: string): Promise<CoordinatorSocket> => {
    const socket = await host.dialCoordinator(path)
    this.#socket = socket
    const line: CoordinatorSocket = {
      send: (text) => {
        this.sent.push(JSON.parse(text) as Said)
        return socket.send(text)
      },
      close: () => socket.close(),
      onMessage: undefined,
      onClose: undefined,
    }
    socket.onMessage = (text) => this.#received(text, (heard) => line.onMessage?.(heard))
    socket.onClose = (reason) => line.onClose?.(reason)
    return line
  }

  break(): void {
    const { onClose } = this.#socket ?? assert.fail('no connection is open')
    this.#socket?.close()
    onClose?.('cut by the test')
  }

  #received(text: string, deliver: (text: string) => void): void {
    const message = JSON.parse(text) as Said
    if (message.type === 'refused') this.refused.push(message)
    if (message.type !== 'welcome' || ++this.#welcomes !== 2) return deliver(text)
    this.sent = []
    deliver(JSON.stringify({ ...message, job: null }))
    setTimeout(() => deliver(JSON.stringify({ type: 'job', job: message['job'] })), 200)
  }
}

/** The third gradient lasts until the executor is released, and fails then. */
function hanging(executor: Executor, onHang: () => void): Executor {
  let gradients = 0
  let fail: (error: GridError) => void = () => undefined
  return {
    ...executor,
    adapter: executor.adapter,
    loadParameters: (parameters) => executor.loadParameters(parameters),
    gradient: (...asked) => {
      if (++gradients !== 3) return executor.gradient(...asked)
      onHang()
      return new Promise((_, reject) => {
        fail = reject
      })
    },
    evaluate: (batch) => executor.evaluate(batch),
    predict: (x, samples) => executor.predict(x, samples),
    destroy: () => {
      fail(new GridError('cancelled', 'the executor was released'))
      executor.destroy()
    },
  }
}

test(
  'a session that ended says nothing on a later connection, and the next one trains on',
  { timeout: 60_000 },
  async () => {
    const dataDir = await mkdtemp(join(tmpdir(), 'starling-'))
    const coordinator = createCoordinator({ dataDir, token: 'the-owner-token-of-tests', port: 0 })
    await coordinator.start()
    const run = await coordinator.runs.submit(smallJob({ stop: { steps: 6 }, minVolunteers: 1 }))
    const line = new Line()
    let executors = 0
    const life = live(coordinator.url, (host) => ({
      dialCoordinator: (path) => line.dial(host, path),
      createExecutor: async (...asked) => {
        const executor = await host.createExecutor(...asked)
        return ++executors === 1 ? hanging(executor, () => line.break()) : executor
      },
    }))
    try {
      while (run.state.finished === undefined) await new Promise((resolve) => setTimeout(resolve, 20))
      const before = line.sent.slice(
        0,
        line.sent.findIndex(({ type }) => type === 'ready'),
      )
      assert.deepEqual(
        before.map(({ type }) => type),
        [],
        'between WELCOME and ready',
      )
      assert.deepEqual(line.refused, [])
      assert.equal(executors, 2, 'the job was prepared anew')
    } finally {
      await life.stop()
      await coordinator.stop()
      await rm(dataDir, { recursive: true, force: true })
    }
  },
)
