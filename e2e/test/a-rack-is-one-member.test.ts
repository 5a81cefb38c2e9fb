// A volunteer with a machine that is lent to it: one member of the ring. The machine is killed, and comes back.
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { createServer, type AddressInfo } from 'node:net'
import { test } from 'node:test'
import { type Child, Grid, startChild } from '@starling-grid/cli'
import { finishesWhole, PACED, QUICK, smallJob } from './small-job.ts'

const STEPS = 60
const KEY = randomBytes(32).toString('hex')

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await new Promise((resolve) => {
    server.once('listening', resolve)
  })
  const { port } = server.address() as AddressInfo
  await new Promise((resolve) => {
    server.close(resolve)
  })
  return port
}

async function lend(port: number): Promise<Child> {
  let isLent = (): void => undefined
  const lent = new Promise<void>((resolve) => {
    isLent = resolve
  })
  const child = startChild({
    name: 'lent',
    args: ['lend', '--listen', `127.0.0.1:${port}`, '--executor', 'reference'],
    env: { STARLING_RACK_KEY: KEY },
    onLine: (line) => void (line.includes('lends this machine') && isLent()),
  })
  await Promise.race([lent, child.ended.then((code) => assert.fail(`ended with ${code}`))])
  return child
}

test('a rack is one member of a ring, and a machine of it that is killed costs no sample and comes back', async () => {
  const port = await freePort()
  const first = await lend(port)
  const grid = await Grid.start({ timing: QUICK })
  try {
    const job = await grid.submit(smallJob({ stop: { steps: STEPS }, minVolunteers: 2 }))
    const env = { STARLING_RACK_KEY: KEY, STARLING_MACHINES: `127.0.0.1:${port}` }
    const rack = grid.addVolunteer({ name: 'rack', executor: 'reference', env })
    grid.addVolunteer({ name: 'plain', ...PACED }) // a machine needs some seconds to come back
    await grid.watch.waitFor('a ring of both', ({ run }) => run?.phase === 'ring' && (run.version.v ?? 0) > 3)
    assert.ok(
      rack.lines.some((line) => line.includes('2 software adapters')),
      rack.lines.join('\n'),
    )
    first.kill('SIGKILL')
    await first.ended
    await grid.watch.waitFor('steps without it', ({ run }) => {
      const isOut = rack.lines.some((line) => line.includes('is left out from now on'))
      return run?.phase === 'ring' && isOut
    })
    const second = await lend(port)
    await grid.watch.waitFor('it is back', ({ run }) => {
      const joined = rack.lines.filter((line) => line.includes('computes from now on')).length
      return run?.phase === 'finished' || (run?.phase === 'ring' && joined === 2)
    })
    const run = await finishesWhole(grid, job, STEPS)
    assert.equal(run.checkpoint?.members, 2, 'a rack counts as one')
    assert.equal(rack.lines.filter((line) => line.includes('computes from now on')).length, 2, rack.lines.join('\n'))
    rack.kill('SIGTERM')
    assert.equal(await rack.ended, 0)
    second.kill('SIGTERM')
    assert.equal(await second.ended, 0)
  } finally {
    await grid.stop()
  }
})
