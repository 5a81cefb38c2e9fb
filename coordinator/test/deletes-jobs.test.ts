// A deleted job takes with it what it alone has, wherever that lies, also when the coordinator dies meanwhile.
import assert from 'node:assert/strict'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { pathTo, ROUTES, type JobList, type Sha256 } from '@starling-grid/protocol'
import { publishedModel } from '@starling-grid/volunteer/testing'
import type { BlobStore } from '../src/blobs/blob-store.ts'
import { openFolderBlobs } from '../src/blobs/folder.ts'
import { memoryBlobs } from '../src/blobs/memory.ts'
import { openS3Blobs, readS3Url } from '../src/blobs/s3.ts'
import { memoryState } from '../src/journal/memory.ts'
import type { PortableState } from '../src/journal/portable.ts'
import { openPostgresState } from '../src/journal/postgres.ts'
import { openSqliteState } from '../src/journal/sqlite.ts'
import { importModel } from '../src/models/import-model.ts'
import { ModelCatalog } from '../src/models/model-catalog.ts'
import { OWNER, smallJob, startCoordinator, submit, until, volunteer } from './fixture.ts'
import { startPostgres } from './postgres.ts'
import { startS3 } from './s3.ts'

const postgres = await startPostgres()
const s3 = await startS3()
const folder = await mkdtemp(join(tmpdir(), 'starling-deletes-'))
after(async () => {
  await postgres?.stop()
  await s3?.stop()
  await rm(folder, { recursive: true, force: true })
})

interface Storage {
  readonly store: PortableState
  readonly blobs: BlobStore
}

/** A new place; each call of what it answers opens it again. */
type NewPlace = (name: string) => () => Promise<Storage>
const PLACES: Readonly<Record<string, { readonly place: NewPlace; readonly skip?: boolean }>> = {
  'in memory': {
    place: () => {
      const storage = { store: memoryState(), blobs: memoryBlobs() }
      return async () => storage
    },
  },
  'in SQLite and a folder': {
    place: (name) => async () => ({
      store: openSqliteState(join(folder, name, 'state.db')),
      blobs: await openFolderBlobs(join(folder, name, 'blobs')),
    }),
  },
  'in PostgreSQL and a bucket': {
    skip: postgres === undefined || s3 === undefined,
    place: (name) => {
      const database = postgres?.database(name) ?? ''
      return async () => ({
        store: await openPostgresState(database),
        blobs: await openS3Blobs(readS3Url(`${s3?.url}/${name}`, s3?.environment ?? {})),
      })
    },
  },
}

const JOB = { stop: { epochs: 1 }, volunteers: { min: 1 } } as const

async function blobsIn({ blobs }: Storage): Promise<Set<Sha256>> {
  const found = new Set<Sha256>()
  for await (const name of blobs.list()) found.add(name)
  return found
}

async function trained(url: string, change: Parameters<typeof smallJob>[0]): Promise<string> {
  const { id } = await submit(url, smallJob({ ...JOB, ...change }))
  const member = volunteer(url)
  await until(
    url,
    'its end',
    ({ job, phase, checkpoint }) => job.id === id && phase === 'finished' && checkpoint !== null,
  )
  await member.heard('finished')
  return id
}

async function remove(
  url: string,
  id: string,
): Promise<{ readonly status: number; readonly code?: string; readonly detail?: string }> {
  const response = await fetch(url + pathTo(ROUTES.job, { id }), { method: 'DELETE', headers: OWNER })
  return { status: response.status, ...((await response.json()) as object) }
}

async function listed(url: string): Promise<string[]> {
  const { jobs } = (await (await fetch(url + ROUTES.jobs, { headers: OWNER })).json()) as JobList
  return jobs.map(({ job }) => job.id)
}

for (const [where, { place, skip = false }] of Object.entries(PLACES)) {
  test(`${where}: a deleted job is gone with its versions, and shards that others have stay`, { skip }, async () => {
    const storage = await place('whole')()
    const coordinator = await startCoordinator({ storage })
    const { url } = coordinator
    const before = await blobsIn(storage) // the mark by which coordinators know that they share a store
    const other = await trained(url, { seed: 4 })
    const others = await blobsIn(storage)
    const id = await trained(url, { seed: 5 })
    assert.ok((await blobsIn(storage)).size > others.size, 'it has versions of its own')
    assert.deepEqual(await remove(url, id), { status: 200, deleted: id })
    assert.deepEqual(await blobsIn(storage), others)
    assert.deepEqual(await listed(url), [other])
    assert.equal((await fetch(url + pathTo(ROUTES.job, { id }), { headers: OWNER })).status, 404)
    assert.equal((await remove(url, id)).status, 404)
    assert.deepEqual(await storage.store.deleted(), [])
    assert.deepEqual(
      (await storage.store.jobs()).map((job) => job.id),
      [other],
    )
    // the last of its dataset takes the shards too
    assert.equal((await remove(url, other)).status, 200)
    assert.deepEqual(await blobsIn(storage), before)
    await coordinator.stop()
  })

  test(`${where}: a deletion that a crash broke off is finished by the next start`, { skip }, async () => {
    const open = place('broken')
    const storage = await open()
    const first = await startCoordinator({ storage })
    const other = await trained(first.url, { seed: 6 })
    const others = await blobsIn(storage)
    const id = await trained(first.url, { seed: 7 })
    // dies at its first blob
    const failing = storage.blobs.delete
    storage.blobs.delete = () => Promise.reject(new Error('power failure'))
    assert.equal((await remove(first.url, id)).status, 200)
    assert.deepEqual(await listed(first.url), [other], 'it is gone for all who ask')
    assert.deepEqual(
      (await storage.store.deleted()).map((job) => job.id),
      [id],
    )
    await first.stop()
    storage.blobs.delete = failing
    const again = await open()
    const second = await startCoordinator({ storage: again })
    assert.deepEqual(await listed(second.url), [other])
    assert.deepEqual(await blobsIn(again), others)
    assert.deepEqual(await again.store.deleted(), [])
    await second.stop()
  })
}

test('a job that runs is not deleted, and the answer says how to stop it', async () => {
  const { url } = await startCoordinator()
  const { id } = await submit(url, smallJob({ stop: { epochs: 5000 }, volunteers: { min: 1 } }))
  volunteer(url)
  await until(url, 'a step', ({ version }) => version.v > 0)
  const { status, code, detail } = await remove(url, id)
  assert.deepEqual([status, code], [409, 'message-unexpected'])
  assert.match(detail ?? '', new RegExp(`which is running; stop it first with: starling job stop ${id}`))
  assert.deepEqual(await listed(url), [id])
})

test('a job that waits for its first volunteer is deleted, and the next volunteer gets another one', async () => {
  const { url } = await startCoordinator()
  const next = (await submit(url, smallJob({ ...JOB, seed: 8 }))).id
  const mistaken = (await submit(url, smallJob({ ...JOB, seed: 9 }))).id
  assert.equal((await remove(url, mistaken)).status, 200)
  const member = volunteer(url)
  await member.heard('finished')
  assert.equal(member.terms?.id, next)
})

test('the base model of a deleted job stays while another job tunes beside it, and goes with the last', async () => {
  const dataDir = join(folder, 'tuned')
  const published = join(folder, 'published')
  await mkdir(published)
  for (const [name, content] of publishedModel()) await writeFile(join(published, name), content)
  const text = join(folder, 'text.txt')
  await writeFile(text, 'a few words to train on. '.repeat(40))
  const models = new ModelCatalog(dataDir)
  const now = { now: () => '2026-01-01T00:00:00Z' }
  const base = await importModel({ name: 'small', folder: published, storage: 'int8' }, models, now)
  const { url } = await startCoordinator({ dataDir, dataRoot: folder })
  const job = {
    ...smallJob(JOB),
    model: { base: 'small', context: 16, lora: { rank: 2 } },
    dataset: { source: 'text', path: text, tokens: 'characters' },
  } as const
  const [first, second] = [await submit(url, job), await submit(url, job)]
  await models.delete('small', () => true)
  const blobs = await models.blobs()
  const shard = base.shards[0]?.sha256
  assert.ok(shard)
  assert.equal((await remove(url, first.id)).status, 200)
  assert.ok((await blobs.has(shard)) && (await blobs.has(base.manifest.sha256)))
  assert.equal((await remove(url, second.id)).status, 200)
  assert.deepEqual([await blobs.has(shard), await blobs.has(base.manifest.sha256)], [false, false])
})

test('a caller without the owner token deletes nothing', async () => {
  const { url } = await startCoordinator()
  const { id } = await submit(url, smallJob({ public: true }))
  const response = await fetch(url + pathTo(ROUTES.job, { id }), { method: 'DELETE' })
  assert.equal(response.status, 401)
  assert.deepEqual(await listed(url), [id])
})
