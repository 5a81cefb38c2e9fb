// The coordinator computes a committed step again now and then, in a run as any other. Volunteers are not told before
// which one, and keep nothing for it.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Grid } from '@starling-grid/cli'
import type { AuditView, RunView } from '@starling-grid/protocol'
import { QUICK, smallJob } from './small-job.ts'

const FAULTY = fileURLToPath(new URL('../src/faulty-volunteer.ts', import.meta.url))
const STEPS = 2000

interface Audited {
  readonly audit: AuditView
  readonly run: RunView
  readonly events: readonly string[]
}

/** Until the first step was computed again; `liar`: one of three contributes gradients of the step before. */
async function firstAudit(liar: boolean): Promise<Audited> {
  const grid = await Grid.start({ timing: { ...QUICK, checkpointSteps: 3 } })
  try {
    await grid.submit({ ...smallJob({ stop: { steps: STEPS }, minVolunteers: 3 }), audit: 1 })
    for (let i = 0; i < 2; i++) grid.addVolunteer({ executor: 'reference' })
    const fault = liar ? { entry: FAULTY, env: { STARLING_FAULT: 'old-gradients:1' } } : {}
    grid.addVolunteer({ name: 'third', executor: 'reference', ...fault })
    const run = await grid.watch.waitFor(
      'a step that was computed again',
      ({ run }) => (run?.audit.agreed ?? 0) + (run?.audit.differed ?? 0) > 0 && run,
      240_000,
    )
    const events = grid.watch.events.filter(({ kind }) => kind === 'audit').map(({ text }) => text)
    return { audit: run.audit, run, events }
  } finally {
    await grid.stop()
  }
}

test('a step of honest members is found as its record says, and nothing is said', { timeout: 300_000 }, async () => {
  const { audit, events } = await firstAudit(false)
  assert.deepEqual([audit.agreed, audit.differed, audit.off], [1, 0, null])
  assert.match(audit.last?.text ?? '', /^differs by .*e-/)
  assert.deepEqual(
    events.filter((text) => text.startsWith('AUDIT')),
    [],
  )
})

test(
  'threat 45: a member that contributes an old gradient is seen by the audit, which names step, record and members',
  { timeout: 300_000 },
  async () => {
    const { audit, run, events } = await firstAudit(true)
    assert.deepEqual([audit.agreed, audit.differed, audit.last?.result], [0, 1, 'differed'])
    const [text = ''] = events.filter((one) => one.startsWith('AUDIT'))
    assert.match(text, new RegExp(`step ${audit.last?.v} is not what its record says: the gradient of its blocks`))
    assert.match(text, /made by generation \d+ of .*third.*; blocks 0:/)
    assert.equal(run.phase, 'ring', 'training goes on')
    assert.equal(run.memberCount, 3, 'no member is put out for it')
  },
)
