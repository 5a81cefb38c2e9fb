// Two coordinators share a database and blobs. The one that has the job is killed in the midst of a training, and the
// other one ends it with the same volunteers.
import { test } from 'node:test'
import { endsWhole, skip, stopAll, training, two } from './two-coordinators.ts'

test(
  'another coordinator goes on with the job of one that was killed, and no step is lost or counted twice',
  { skip, timeout: 300_000 },
  async () => {
    const [first, second] = await two()
    try {
      const job = await training([first, second])
      const before = await first.records(job)
      await first.killCoordinator()
      await endsWhole({ first, second, job }, before)
    } finally {
      await stopAll(first, second)
    }
  },
)
