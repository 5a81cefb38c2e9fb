// GET /metrics: what Prometheus reads of a real coordinator, who may read it, and what its labels never hold.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ROUTES } from '@starling-grid/protocol'
import { Meter } from '../src/metrics/meter.ts'
import { volunteersWanted } from '../src/metrics/wanted.ts'
import { OWNER, smallJob, startCoordinator, submit, until, volunteer } from './fixture.ts'
import { type Sample, samplesIn, scrape } from './prometheus-text.ts'

const PRIVATE = /^private-[0-9a-f]{8}$/

function valueOf(samples: readonly Sample[], name: string, labels: Readonly<Record<string, string>> = {}): number {
  const wanted = Object.entries(labels)
  const found = samples.filter(
    (sample) => sample.name === name && wanted.every(([label, value]) => sample.labels[label] === value),
  )
  assert.ok(found.length > 0, `${name} ${JSON.stringify(labels)}`)
  return found.reduce((sum, { value }) => sum + value, 0)
}

test('a scrape tells of jobs, members, blocks, steps, journal, requests and the process', async () => {
  const { url } = await startCoordinator()
  const { id } = await submit(url, smallJob({ name: 'Top secret', stop: { epochs: 1000 }, volunteers: { min: 1 } }))
  volunteer(url, { name: 'marigold', stepMs: 20 })
  const run = await until(
    url,
    'steps and a validation',
    ({ version, lastValidation }) => version.v > 10 && lastValidation !== null,
  )
  await fetch(`${url}/nothing/at/all`)
  const samples = await scrape(url, OWNER)
  assert.equal(valueOf(samples, 'starling_jobs', { state: 'running' }), 1)
  assert.equal(valueOf(samples, 'starling_members', { mode: 'ring' }), 1)
  assert.equal(valueOf(samples, 'starling_volunteers_wanted'), 4, 'one for each block of a step')
  assert.ok(valueOf(samples, 'starling_job_version', { job_id: id }) >= run.version.v)
  assert.ok(valueOf(samples, 'starling_steps_total', { kind: 'ring' }) >= run.version.v)
  assert.ok(valueOf(samples, 'starling_ballots_total') >= 1)
  assert.equal(valueOf(samples, 'starling_job_blocks', { job_id: id }), 36, 'the blocks of an epoch')
  assert.ok(valueOf(samples, 'starling_job_samples_per_second', { job_id: id }) > 0)
  assert.ok(valueOf(samples, 'starling_job_validation_loss', { job_id: id }) > 0)
  const appends = valueOf(samples, 'starling_journal_append_seconds_count')
  assert.ok(appends > 0 && valueOf(samples, 'starling_journal_rows_total') >= appends)
  assert.ok(valueOf(samples, 'starling_http_requests_total', { route: ROUTES.jobs, status: '201' }) === 1)
  assert.ok(valueOf(samples, 'starling_http_request_seconds_count', { route: ROUTES.jobs }) >= 1)
  assert.ok(valueOf(samples, 'starling_received_bytes_total') > 1000)
  assert.ok(valueOf(samples, 'starling_sent_bytes_total') > 1000)
  for (const name of ['process_cpu_seconds_total', 'process_resident_memory_bytes', 'nodejs_eventloop_lag_p99_seconds'])
    assert.ok(valueOf(samples, name) >= 0, name)
})

test('labels hold no member, and no address that a stranger made up', async () => {
  const { url } = await startCoordinator()
  await submit(url, smallJob({ stop: { epochs: 1000 }, volunteers: { min: 1 } }))
  const member = volunteer(url, { name: 'marigold', stepMs: 20 })
  await until(url, 'a step', ({ version }) => version.v > 0)
  for (let i = 0; i < 30; i++) await fetch(`${url}/made/up/${i}`, { method: i % 2 === 0 ? 'GET' : 'POST' })
  member.raw({ type: 'nonsense' })
  await member.heard('refused')
  const samples = await scrape(url, OWNER)
  const labels = JSON.stringify(samples.map((sample) => sample.labels))
  for (const secret of ['marigold', member.id, 'made']) assert.equal(labels.includes(secret), false, secret)
  assert.equal(valueOf(samples, 'starling_http_requests_total', { route: 'none', status: '404' }), 30)
  assert.equal(samples.filter(({ labels: { route } }) => route === 'none').length > 0, true)
  assert.equal(
    samples.filter(({ name, labels: { route } }) => name === 'starling_http_requests_total' && route === 'none').length,
    1,
  )
  assert.equal(valueOf(samples, 'starling_refusals_total', { code: 'message-malformed' }), 1)
})

test('threat 48: a private job has a name that tells nothing, but for its owner and the metrics token', async () => {
  const token = 'a-token-for-prometheus'
  const { url } = await startCoordinator({ metrics: { token } })
  const { id: hidden } = await submit(url, smallJob({ name: 'Top secret', volunteers: { min: 5 } }))
  const { id: open } = await submit(url, smallJob({ name: 'Known', volunteers: { min: 5 }, public: true }))
  const jobsFor = async (headers: Record<string, string> = {}) =>
    (await scrape(url, headers))
      .filter(({ name }) => name === 'starling_job_version')
      .map(({ labels: { job_id = '' } }) => job_id)
  for (const headers of [OWNER, { authorization: `Bearer ${token}` }])
    assert.deepEqual(new Set(await jobsFor(headers)), new Set([hidden, open]))
  const seen = await jobsFor()
  assert.equal(seen.filter((job) => PRIVATE.test(job)).length, 1)
  assert.ok(seen.includes(open) && seen.length === 2)
  assert.deepEqual(await jobsFor(), seen, 'the same name at each scrape')
})

test('without a token processes of this machine read it, and no proxy in front is taken for one', async () => {
  const status = async (url: string, headers: Record<string, string> = {}) =>
    (await fetch(url + ROUTES.metrics, { headers })).status
  const plain = await startCoordinator()
  assert.equal(await status(plain.url), 200)
  assert.equal(await status(plain.url, { 'x-forwarded-for': '203.0.113.7' }), 401)
  const proxied = await startCoordinator({ publicUrl: new URL('https://grid.example.org') })
  assert.equal(await status(proxied.url), 401)
  assert.equal(await status(proxied.url, OWNER), 200)
  const closed = await startCoordinator({ metrics: { readers: 'token', token: 'a-token-for-prometheus' } })
  assert.equal(await status(closed.url), 401)
  assert.equal(await status(closed.url, { authorization: 'Bearer a-token-for-prometheus' }), 200)
  const open = await startCoordinator({
    publicUrl: new URL('https://grid.example.org'),
    metrics: { readers: 'public' },
  })
  assert.equal(await status(open.url, { 'x-forwarded-for': '203.0.113.7' }), 200)
})

test('a job that ended leaves the figures, and counts among the finished', async () => {
  const { url } = await startCoordinator()
  const { id } = await submit(url, smallJob({ stop: { epochs: 1 }, volunteers: { min: 1 } }))
  volunteer(url)
  await until(url, 'the end', ({ phase }) => phase === 'finished')
  const samples = await scrape(url, OWNER)
  assert.equal(
    samples.some(({ labels: { job_id } }) => job_id === id),
    false,
  )
  assert.equal(valueOf(samples, 'starling_jobs', { state: 'finished' }), 1)
  assert.equal(valueOf(samples, 'starling_members', { mode: 'none' }), 1)
})

test('an append that fails is counted as a failure, and not as rows', async () => {
  const meter = new Meter()
  meter.appending()(undefined)
  meter.appending()([{ at: 0, entry: { type: 'mode', mode: 'async', modeEpoch: 1, reason: 'links fail' } }])
  const samples = samplesIn(await meter.registry.metrics())
  assert.equal(valueOf(samples, 'starling_journal_failures_total'), 1)
  assert.equal(valueOf(samples, 'starling_journal_append_seconds_count'), 1)
  assert.equal(valueOf(samples, 'starling_mode_changes_total', { mode: 'async' }), 1)
})

test('an autoscaler is told of a member for each block of a step, of none for a paused job, of a ring at most', () => {
  const spec = { batchBlocks: 4, volunteers: { min: 1 } }
  assert.equal(volunteersWanted([]), 0)
  assert.equal(
    volunteersWanted([
      { spec, paused: false },
      { spec, paused: true },
    ]),
    4,
  )
  assert.equal(volunteersWanted([{ spec: { batchBlocks: 1, volunteers: { min: 3 } }, paused: false }]), 3)
  assert.equal(volunteersWanted([{ spec: { batchBlocks: 8, volunteers: { max: 3 } }, paused: false }]), 3)
  const most = volunteersWanted([{ spec: { batchBlocks: 1e6 }, paused: false }])
  assert.ok(most > 1 && most < 1e6)
})
