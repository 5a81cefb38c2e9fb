// A coordinator that ends gives its jobs to another one, and one that is cut off from the database loses them to it.
import assert from 'node:assert/strict'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { test } from 'node:test'
import { endsWhole, postgres, skip, stopAll, training, two } from './two-coordinators.ts'

test(
  'a coordinator that is told to end gives its job to another one, where the same volunteers end it',
  { skip, timeout: 300_000 },
  async () => {
    const [first, second] = await two()
    try {
      const job = await training([first, second])
      const before = await first.records(job)
      first.coordinator.kill('SIGTERM')
      await first.coordinator.ended
      await endsWhole({ first, second, job }, before)
      assert.ok(second.watch.events.some(({ text }) => text.includes('checkpoint of version')))
    } finally {
      await stopAll(first, second)
    }
  },
)

test(
  'a coordinator that its database does not reach any more commits nothing, and another one goes on',
  { skip, timeout: 300_000 },
  async () => {
    const line = await openLine(Number(new URL(postgres?.url ?? '').port))
    const [first, second] = await two({ throughLine: (url) => url.replace(/:\d+\//, `:${line.port}/`) })
    try {
      const job = await training([first, second])
      const before = await first.records(job)
      line.cut()
      await second.watch.waitFor('the job at the other one', ({ run }) => run?.job.id === job && run)
      line.mend()
      await endsWhole({ first, second, job }, before)
      // What the first one did meanwhile is in no history; it sends those who ask to the owner.
      assert.deepEqual(await first.api.records(job), await second.api.records(job))
      assert.ok(first.coordinator.alive(), first.coordinator.lines.join(' | '))
    } finally {
      await stopAll(first, second)
      line.close()
    }
  },
)

interface Line {
  readonly port: number
  /** Nothing passes, and nothing can be opened. */
  cut(): void
  mend(): void
  close(): void
}

/** Between a coordinator and the database. */
async function openLine(port: number): Promise<Line> {
  let isCut = false
  const sockets = new Set<Socket>()
  const line = createServer((near) => {
    if (isCut) return near.destroy()
    const far = connect(port, '127.0.0.1')
    for (const [socket, other] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(socket)
      socket.on('error', () => undefined)
      socket.on('close', () => {
        sockets.delete(socket)
        other.destroy()
      })
      socket.pipe(other)
    }
    return undefined
  })
  await new Promise<void>((resolve) => line.listen(0, '127.0.0.1', resolve))
  const cut = (): void => {
    isCut = true
    for (const socket of sockets) socket.destroy()
  }
  return {
    port: (line.address() as AddressInfo).port,
    cut,
    mend() {
      isCut = false
    },
    close() {
      cut()
      line.close()
    },
  }
}
