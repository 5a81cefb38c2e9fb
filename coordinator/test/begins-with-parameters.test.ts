// A job that begins with given parameters (`from`): where they may come from and how members get them. From then on
// they are the job's own.
import assert from 'node:assert/strict'
import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { decodeVersionState, initialParameters, parseModelSpec, readParameters } from '@starling-grid/model'
import {
  digest,
  floatTensor,
  genesis,
  type JobSpec,
  pathTo,
  readSafetensors,
  ROUTES,
  writeSafetensors,
} from '@starling-grid/protocol'
import type { CoordinatorOptions } from '../src/net/server.ts'
import type { FakeVolunteer } from './fake-volunteer.ts'
import { OWNER, smallJob, startCoordinator, submit, temporaryFolder, until, volunteer } from './fixture.ts'

/** No ring forms with the one member that these tests have. */
const WAITS = { volunteers: { min: 2 } } as const
const MODEL = parseModelSpec(smallJob().model)
const WEIGHT = Float32Array.from({ length: 7840 }, (_, i) => Math.fround(Math.sin(i)))
const BIAS = Float32Array.from({ length: 10 }, (_, i) => i + 0.25)
const PARAMETERS = Float32Array.from([...WEIGHT, ...BIAS])
const FILE = writeSafetensors(
  new Map([
    ['fc.weight', floatTensor([10, 784], WEIGHT)],
    ['fc.bias', floatTensor([10], BIAS)],
  ]),
)

/** A data root with the file, one outside, and links and others that are no such file. */
async function dataRoot(): Promise<{ readonly root: string; readonly outside: string }> {
  const folder = await temporaryFolder()
  const [root, outside] = [join(folder, 'data'), join(folder, 'outside.safetensors')]
  await mkdir(join(root, 'a-folder'), { recursive: true })
  await writeFile(join(root, 'model.safetensors'), FILE)
  await writeFile(outside, FILE)
  await symlink(outside, join(root, 'link.safetensors'))
  await writeFile(join(root, 'text.safetensors'), 'no tensors at all')
  return { root, outside }
}

const begun = (from: JobSpec['from'], change: Partial<JobSpec> = {}): JobSpec =>
  smallJob({ ...WAITS, ...(from ? { from } : {}), ...change })

/** What a member of the job is served as version 0: all of it, and its parameters alone. */
async function versionZero(member: FakeVolunteer) {
  const { terms } = member
  assert.ok(terms)
  const version = genesis(terms.id, terms.modelHash, terms.seed, terms.initial)
  const path = pathTo(ROUTES.version, { id: terms.id, versionId: version.id })
  const [whole, part] = await Promise.all([member.request(path), member.request(`${path}?part=parameters`)])
  assert.deepEqual([whole.status, part.status], [200, 200])
  return {
    state: decodeVersionState(new Uint8Array(await whole.arrayBuffer()), { ...member.form, version }),
    parameters: readParameters(new Uint8Array(await part.arrayBuffer()), member.form.layout, version),
    initial: terms.initial,
  }
}

async function memberOf(url: string, id: string): Promise<FakeVolunteer> {
  const member = volunteer(url)
  while (member.terms === undefined) await member.next('a job')
  assert.equal(member.terms?.id, id)
  return member
}

const sha256 = (values: Float32Array): string => digest(new Uint8Array(values.buffer))

test('version 0 is the file: its digest is in the terms, and members are served its parameters', async () => {
  const { root } = await dataRoot()
  const { url } = await startCoordinator({ dataRoot: root })
  const { status, id } = await submit(url, begun({ file: 'model.safetensors' }))
  assert.equal(status, 201)
  const { state, parameters, initial } = await versionZero(await memberOf(url, id))
  assert.equal(initial, sha256(PARAMETERS))
  assert.deepEqual([state.parameters, parameters], [PARAMETERS, PARAMETERS])
  assert.equal(state.optimizerState.step, 0)
  assert.ok(state.optimizerState.slots.every((slot) => slot.every((value) => value === 0)))
})

test('what is left out begins from the seed of the job', async () => {
  const { root } = await dataRoot()
  const { url } = await startCoordinator({ dataRoot: root })
  const job = begun({ file: 'model.safetensors', except: ['fc.bias'] }, { seed: 11 })
  const { id } = await submit(url, job)
  const { parameters } = await versionZero(await memberOf(url, id))
  assert.deepEqual(parameters, Float32Array.from([...WEIGHT, ...initialParameters(MODEL, 11).subarray(-10)]))
})

/** A coordinator with a job that ended, and the parameters that it came to. */
async function trainedParent(options: Partial<CoordinatorOptions> = {}) {
  const coordinator = await startCoordinator(options)
  const { url } = coordinator
  const { id } = await submit(url, smallJob({ stop: { epochs: 1 }, volunteers: { min: 1 } }))
  const member = volunteer(url)
  const run = await until(url, 'its end', ({ phase, checkpoint }) => phase === 'finished' && checkpoint !== null)
  const exported = await fetch(url + pathTo(ROUTES.export, { id }), { headers: OWNER })
  const parameters = readParameters(new Uint8Array(await exported.arrayBuffer()), member.form.layout)
  member.close()
  return { coordinator, url, id, v: run.checkpoint?.v ?? 0, parameters }
}

test('a job begins with a version of another; it keeps it when that is deleted, and over a restart', async () => {
  const dataDir = await temporaryFolder()
  const { coordinator, url, id: parent, v, parameters: trained } = await trainedParent({ dataDir })
  const child = await submit(url, begun({ job: parent, version: 'latest' }))
  assert.equal(child.status, 201, child.detail)
  const spec = (await (await fetch(url + pathTo(ROUTES.spec, { id: child.id }), { headers: OWNER })).json()) as JobSpec
  assert.deepEqual(spec.from, { job: parent, version: v }, 'which version it was')
  const gone = await fetch(url + pathTo(ROUTES.job, { id: parent }), { method: 'DELETE', headers: OWNER })
  assert.equal(gone.status, 200)
  assert.deepEqual((await versionZero(await memberOf(url, child.id))).parameters, trained)
  await coordinator.stop()
  const again = await startCoordinator({ dataDir })
  const { parameters, initial } = await versionZero(await memberOf(again.url, child.id))
  assert.deepEqual([parameters, initial], [trained, sha256(trained)])
})

test('two jobs begin alike: when one is deleted the other keeps its parameters, the last one takes them', async () => {
  const { root } = await dataRoot()
  const dataDir = await temporaryFolder()
  const { url } = await startCoordinator({ dataRoot: root, dataDir })
  const blob = join(dataDir, 'blobs', sha256(PARAMETERS))
  const ids: string[] = []
  for (const seed of [1, 2]) ids.push((await submit(url, begun({ file: 'model.safetensors' }, { seed }))).id)
  const remove = (id: string | undefined) =>
    fetch(url + pathTo(ROUTES.job, { id: id ?? '' }), { method: 'DELETE', headers: OWNER })
  assert.equal((await remove(ids[0])).status, 200)
  assert.deepEqual(new Uint8Array(await readFile(blob)), new Uint8Array(PARAMETERS.buffer))
  assert.equal((await remove(ids[1])).status, 200)
  await assert.rejects(readFile(blob), { code: 'ENOENT' })
})

test('a source that cannot be taken is refused with what to do, at its field', async () => {
  const { root, outside } = await dataRoot()
  const { url, id: parent, v } = await trainedParent({ dataRoot: root })
  const waiting = await submit(url, begun(undefined))
  const cases: readonly (readonly [JobSpec['from'], RegExp])[] = [
    [{ file: outside }, /^from\.file: expected a file inside the folder .*; put it there, or start/],
    [{ file: 'link.safetensors' }, /^from\.file: expected a file inside the folder/],
    [{ file: 'none.safetensors' }, /^from\.file: expected a file inside the folder/],
    [{ file: 'a-folder' }, /^from\.file: expected a safetensors file .*got "a-folder", which is no file; name/],
    [{ file: 'text.safetensors' }, /^from\.file: expected a safetensors file, got "text.safetensors": /],
    [{ job: 'nothing-000000' }, /^from\.job: expected a job of the same owner .*; `starling job list` names them/],
    [{ job: waiting.id }, /^from\.version: expected a job that has a checkpoint, got .*none yet; submit again/],
    [
      { job: parent, version: 4711 },
      new RegExp(`^from\\.version: expected latest or one of .*${v}, got 4711; only these are kept`),
    ],
  ]
  for (const [from, pattern] of cases) {
    const { status, code, detail } = await submit(url, begun(from))
    assert.deepEqual([status, code], [422, 'job-invalid'], JSON.stringify(from))
    assert.match(detail ?? '', pattern)
  }
  const other = {
    ...(smallJob().model as object),
    layers: [{ type: 'flatten' }, { type: 'linear', name: 'fc', out: 3 }],
  }
  const { code, detail } = await submit(url, begun({ job: parent }, { model: other }))
  assert.equal(code, 'job-invalid')
  assert.deepEqual(detail?.split('\n'), [
    'from.job: expected fc.weight [3, 784], got [10, 784]; name it under `from.except` to begin it from the seed',
    'from.job: expected fc.bias [3], got [10]; name it under `from.except` to begin it from the seed',
  ])
})

test('threat 48: an owner begins with versions of own jobs only, and others are answered like none', async () => {
  const { url, id: parent } = await trainedParent()
  const made = await fetch(url + ROUTES.tokens, {
    method: 'POST',
    headers: { ...OWNER, 'content-type': 'application/json' },
    body: JSON.stringify({ scopes: ['jobs:write'] }),
  })
  const { token } = (await made.json()) as { readonly token: string }
  const said = async (job: string): Promise<string> => {
    const { status, detail = '' } = await submit(url, begun({ job }), token)
    return `${status} ${detail.replaceAll(job, 'JOB')}`
  }
  assert.equal(await said(parent), await said('nothing-000000'))
  assert.match(await said(parent), /^422 from.job: expected a job of the same owner/)
})

test('parameters that are gone from the disk stop the run loudly, and name the file', async () => {
  const { root } = await dataRoot()
  const dataDir = await temporaryFolder()
  const { url } = await startCoordinator({ dataRoot: root, dataDir })
  const { id } = await submit(url, begun({ file: 'model.safetensors' }))
  const name = sha256(PARAMETERS)
  await writeFile(join(dataDir, 'blobs', name), 'damaged')
  const member = await memberOf(url, id)
  const { terms } = member
  assert.ok(terms)
  const version = genesis(terms.id, terms.modelHash, terms.seed, terms.initial)
  const answer = await member.request(pathTo(ROUTES.version, { id, versionId: version.id }))
  const { code, detail } = (await answer.json()) as { readonly code: string; readonly detail: string }
  assert.deepEqual([answer.status, code], [507, 'disk-failed'])
  assert.match(detail, new RegExp(`got no whole blob ${name}; restore it from a backup`))
})

test('the description of a job is what its owner wrote: a schedule over the whole training stays one', async () => {
  const { url } = await startCoordinator()
  const optimizer = { type: 'sgd', lr: 0.1, schedule: { type: 'linear', to: 0.1 } } as const
  for (const written of [smallJob({ optimizer }), smallJob({ optimizer: { ...optimizer, momentum: 0.5 }, seed: 9 })]) {
    const { id } = await submit(url, written)
    const spec = await (await fetch(url + pathTo(ROUTES.spec, { id }), { headers: OWNER })).json()
    assert.deepEqual(spec, JSON.parse(JSON.stringify(written)))
  }
})

test('the file that a job begins with may be what the coordinator exported', async () => {
  const folder = await temporaryFolder()
  const { url, id: parent, parameters: trained } = await trainedParent({ dataRoot: folder })
  const exported = await fetch(url + pathTo(ROUTES.export, { id: parent }), { headers: OWNER })
  const bytes = new Uint8Array(await exported.arrayBuffer())
  assert.equal(readSafetensors(bytes).metadata['format'], 'pt')
  await writeFile(join(folder, 'exported.safetensors'), bytes)
  const { id } = await submit(url, begun({ file: 'exported.safetensors' }))
  assert.deepEqual((await versionZero(await memberOf(url, id))).parameters, trained)
})
