// Faults of the simulated disk end when they say so: a file that stays damaged would be a run that never ends.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { noCounts } from '../src/world/counts.ts'
import { Disk } from '../src/world/disk.ts'

test('a file that is damaged again while it is damaged is whole when both faults are over', async () => {
  const disk = new Disk({ diskMs: 0, gapMs: 0 }, noCounts())
  const bytes = new Uint8Array([1, 2, 3])
  const name = await disk.blobs.put(bytes.slice())
  const ends = [disk.damage(name), disk.damage(name)]
  assert.notDeepEqual(disk.kept.get(name), bytes)
  for (const end of ends) end()
  assert.deepEqual(disk.kept.get(name), bytes)
})
