// A scenario that hangs ends, and says what it waited for.
import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, test } from 'node:test'
import { Watch } from '@starling-grid/cli'
import { within } from '../src/chaos/deadline.ts'

const server = createServer().listen(0, '127.0.0.1')
const watch = new Watch(`http://127.0.0.1:${(server.address() as AddressInfo | null)?.port ?? 0}`, 'no-token')
after(() => {
  watch.stop()
  server.close()
})

test('work that does not end is given up after its time, with what it waited for', async () => {
  const hanging = watch.waitFor('the refusal of a lie', () => undefined, 2000)
  hanging.catch(() => undefined)
  assert.equal(watch.waitingFor, 'the refusal of a lie')
  await assert.rejects(within(20, watch, hanging), /still waiting for the refusal of a lie; the run is unknown/)
})

test('work that ends in time ends as it is, well or not', async () => {
  assert.equal(
    await within(
      60_000,
      watch,
      watch.waitFor('nothing', () => 7),
    ),
    7,
  )
  assert.doesNotMatch(watch.waitingFor, /nothing and|and nothing/)
  await assert.rejects(within(60_000, watch, Promise.reject(new Error('of its own'))), /of its own/)
})
