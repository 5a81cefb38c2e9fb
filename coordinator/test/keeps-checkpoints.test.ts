// What a job keeps, over real sockets. Its bytes stay while others are deleted and over a restart, and each checkpoint
// can be exported by its step.
import assert from 'node:assert/strict'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { type CheckpointList, type JobSpec, pathTo, readSafetensors, ROUTES } from '@starling-grid/protocol'
import {
  OWNER,
  QUICK,
  runOf,
  smallJob,
  startCoordinator,
  submit,
  temporaryFolder,
  until,
  volunteer,
} from './fixture.ts'

async function keptOf(url: string, id: string): Promise<CheckpointList['checkpoints']> {
  const answer = await fetch(`${url}${pathTo(ROUTES.checkpoints, { id })}`, { headers: OWNER })
  return ((await answer.json()) as CheckpointList).checkpoints
}

function exported(url: string, id: string, query: string): Promise<Response> {
  return fetch(`${url}${pathTo(ROUTES.export, { id })}${query}`, { headers: OWNER })
}

const options = { timing: { ...QUICK, checkpointSteps: 2 } }
const job: Partial<JobSpec> = { stop: { steps: 24 }, evaluate: { everySteps: 4 }, keep: { best: 1, last: 2, every: 8 } }

for (const mode of ['ring', 'async'] as const)
  test(`the best version and one of every eight steps stay, in ${mode} mode, also over a restart`, async () => {
    const dataDir = await temporaryFolder()
    const before = await startCoordinator({ ...options, dataDir })
    const { id } = await submit(before.url, smallJob({ ...job, mode }))
    for (let i = 0; i < 2; i++) volunteer(before.url)
    await until(before.url, 'the end', ({ phase }) => phase === 'finished')
    const [{ best }, kept] = [await runOf(before.url, id), await keptOf(before.url, id)]
    const steps = kept.map(({ v }) => v)
    assert.ok(best !== null && steps.includes(best.v), `${best?.v} is among ${steps.join()}`)
    for (const mark of [1, 2, 3])
      assert.ok(
        steps.some((v) => Math.floor(v / 8) === mark),
        `${mark} of ${steps.join()}`,
      )
    await before.stop()

    const { url } = await startCoordinator({ ...options, dataDir })
    assert.deepEqual(await keptOf(url, id), kept)
    for (const v of steps) {
      const answer = await exported(url, id, `?version=${v}`)
      assert.equal(answer.status, 200)
      assert.equal(readSafetensors(new Uint8Array(await answer.arrayBuffer())).metadata['v'], String(v))
    }
    const newest = readSafetensors(new Uint8Array(await (await exported(url, id, '')).arrayBuffer()))
    assert.equal(newest.metadata['v'], '24')
    const absent = await exported(url, id, '?version=3')
    assert.equal(absent.status, 404)
    const { detail } = (await absent.json()) as { detail: string }
    assert.equal(detail, `version 3 is not kept; ask for one of ${steps.join(', ')}`)
    const names = new Set((await readdir(join(dataDir, 'blobs'), { recursive: true })).map((name) => name.slice(-64)))
    assert.deepEqual(
      kept.filter(({ sha256 }) => !names.has(sha256)),
      [],
    )
  })
