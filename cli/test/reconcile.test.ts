// What the operator does next, and what it tells: decided from what the cluster and the coordinator say, and from
// nothing else.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { RunView } from '@starling-grid/protocol'
import { type JobSeen, nextAction, statusOf } from '../src/operator/reconcile.ts'
import { replicasFor } from '../src/operator/replicas.ts'
import { FINALIZER, type TrainingJob, type TrainingJobStatus } from '../src/operator/training-job.ts'

const NOW = '2026-01-01T00:00:00Z'
const DIGEST = 'a'.repeat(64)

function object(change: { spec?: object; status?: TrainingJobStatus; metadata?: object } = {}): TrainingJob {
  const { spec, status, metadata } = change
  return {
    metadata: { name: 'digits', uid: 'u1', resourceVersion: '7', generation: 1, finalizers: [FINALIZER], ...metadata },
    spec: { job: { name: 'Digits' }, ...spec },
    ...(status === undefined ? {} : { status: status as NonNullable<TrainingJob['status']> }),
  }
}

/** Of a view, what the operator reads. */
function run(change: object = {}): JobSeen & { readonly type: 'run' } {
  const view = {
    phase: 'ring',
    paused: false,
    reason: 'trains',
    version: { v: 12 },
    epoch: 1,
    lastStep: { loss: 0.123456 },
    lastValidation: null,
    samplesPerSecond: 1000,
    memberCount: 3,
    job: { id: 'digits-1a2b3c', batchBlocks: 8, volunteers: { min: 1, max: null } },
    ...change,
  }
  return { type: 'run', view: view as unknown as RunView }
}

const NONE: JobSeen = { type: 'none' }
const UNKNOWN: JobSeen = { type: 'unknown', why: 'no answer' }
const leaving = { deletionTimestamp: NOW }

test('each state leads to one action, and the state after it to the next', () => {
  const cases: readonly [expected: string | undefined, job: TrainingJob, seen: JobSeen][] = [
    ['add-finalizer', object({ metadata: { finalizers: undefined } }), NONE],
    ['submit', object(), NONE],
    [undefined, object(), UNKNOWN],
    [undefined, object(), run()],
    // The coordinator lost it: it is not trained anew without being asked.
    [undefined, object({ status: { jobId: 'digits-1a2b3c' } }), NONE],
    // Refused once, it is sent again when it is another.
    [undefined, object({ status: { phase: 'Failed', observedGeneration: 1 } }), NONE],
    ['submit', object({ status: { phase: 'Failed', observedGeneration: 0 } }), NONE],
    ['pause', object({ spec: { paused: true } }), run()],
    [undefined, object({ spec: { paused: true } }), run({ paused: true })],
    ['resume', object({ spec: { paused: false } }), run({ paused: true })],
    [undefined, object(), run({ paused: true })], // an owner paused it by other means
    [undefined, object({ spec: { paused: true } }), run({ phase: 'finished' })],
  ]
  for (const [expected, job, seen] of cases)
    assert.equal(nextAction(job, seen)?.action, expected, JSON.stringify({ job, seen }))
})

test('an object that is deleted takes leave of its job first, and goes when nothing is left to do', () => {
  const stopping: TrainingJobStatus = { jobId: 'digits-1a2b3c', phase: 'Stopping' }
  const isDeleted = (status: TrainingJobStatus, spec = {}): TrainingJob => object({ metadata: leaving, status, spec })
  const cases: readonly [expected: string | undefined, job: TrainingJob, seen: JobSeen][] = [
    [undefined, isDeleted(stopping), UNKNOWN],
    ['remove-finalizer', isDeleted({}), NONE],
    ['stop', isDeleted({ phase: 'Running' }), run()],
    ['remove-finalizer', isDeleted(stopping), run()],
    ['remove-finalizer', isDeleted({ phase: 'Finished' }), run({ phase: 'finished' })],
    ['stop', isDeleted({ phase: 'Running' }, { whenDeleted: 'Delete' }), run()],
    [undefined, isDeleted(stopping, { whenDeleted: 'Delete' }), run()],
    ['resume', isDeleted(stopping, { whenDeleted: 'Delete' }), run({ paused: true })],
    ['delete', isDeleted(stopping, { whenDeleted: 'Delete' }), run({ phase: 'finished' })],
    [undefined, object({ metadata: { ...leaving, finalizers: ['of.others/theirs'] } }), run()],
  ]
  for (const [expected, job, seen] of cases)
    assert.equal(nextAction(job, seen)?.action, expected, JSON.stringify({ job, seen }))
})

test('the status says how the job does, and a condition keeps the time since which it holds', () => {
  const first = statusOf(object(), run(), { now: NOW, digest: DIGEST })
  assert.deepEqual(
    [first.phase, first.jobId, first.step, first.loss, first.volunteers, first.observedGeneration, first.message],
    ['Running', 'digits-1a2b3c', 12, 0.1235, 3, 1, 'trains'],
  )
  const later = statusOf(object({ status: first }), run({ phase: 'finished', reason: 'ended' }), {
    now: '2026-01-02T00:00:00Z',
    digest: DIGEST,
  })
  const since = (status: TrainingJobStatus): Record<string, string> =>
    Object.fromEntries(
      (status.conditions ?? []).map((one) => [one.type, `${one.status} ${one.lastTransitionTime.slice(0, 10)}`]),
    )
  assert.deepEqual(since(later), {
    CoordinatorReachable: 'True 2026-01-01',
    Submitted: 'True 2026-01-01',
    Training: 'False 2026-01-02',
    Finished: 'True 2026-01-02',
    UpToDate: 'True 2026-01-01',
  })
})

test('a coordinator that does not answer leaves the figures as they were, and says so in a condition', () => {
  const before = statusOf(object(), run(), { now: NOW, digest: DIGEST })
  const { conditions = [], ...now } = statusOf(object({ status: before }), UNKNOWN, { now: NOW, digest: DIGEST })
  assert.deepEqual([now.phase, now.step, now.loss], ['Running', 12, 0.1235])
  assert.deepEqual(
    conditions.filter(({ type }) => type === 'CoordinatorReachable').map(({ status, message }) => [status, message]),
    [['False', 'no answer']],
  )
})

test('a description that changes after its submission is said to be another, and a refused one why', () => {
  const submitted = statusOf(object(), run(), { now: NOW, digest: DIGEST })
  const other = statusOf(object({ status: submitted }), run(), { now: NOW, digest: 'b'.repeat(64) })
  assert.equal(other.conditions?.find(({ type }) => type === 'UpToDate')?.reason, 'SpecChanged')
  const refused = statusOf(object(), { type: 'refused', why: 'seed: expected a number' }, { now: NOW, digest: DIGEST })
  assert.deepEqual([refused.phase, refused.message], ['Failed', 'seed: expected a number'])
  const again = statusOf(object({ status: refused }), NONE, { now: NOW, digest: DIGEST })
  assert.deepEqual(again, refused)
})

test('as many volunteers run as open jobs have work for, within the least and the most that are allowed', () => {
  const job = (batchBlocks: number, min: number, max: number | null, change: object = {}): RunView =>
    run({ job: { batchBlocks, volunteers: { min, max } }, ...change }).view
  assert.equal(replicasFor([], 10).replicas, 0)
  assert.equal(replicasFor([job(8, 1, null)], 10).replicas, 8)
  assert.equal(replicasFor([job(8, 1, 6)], 10).replicas, 6) // EDL's job that wants six
  assert.equal(replicasFor([job(8, 1, 6), job(8, 5, 5)], 20).replicas, 11)
  assert.equal(replicasFor([job(2, 4, null)], 20).replicas, 4)
  assert.equal(replicasFor([job(8, 1, 6, { paused: true }), job(8, 1, 6, { phase: 'finished' })], 10).replicas, 0)
  const { replicas, reason } = replicasFor([job(8, 5, 5), job(8, 6, 6)], 10)
  assert.equal(replicas, 10)
  assert.equal(reason, '2 open jobs have work for 11 volunteers; at most 10 are asked for, and needs 11 to start all')
})
