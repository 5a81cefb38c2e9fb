// Which files of the coordinator's machine a job may read.
import assert from 'node:assert/strict'
import { mkdir, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { ROUTES } from '@starling-grid/protocol'
import { datasetInside } from '../src/datasets/data-root.ts'
import { smallJob, startCoordinator, submit, temporaryFolder } from './fixture.ts'

const text = (path: string) => ({ source: 'text', path, tokens: 'characters' }) as const
const mnist = (folder: string) => ({ source: 'mnist', folder }) as const

async function tree(): Promise<{ readonly root: string; readonly outside: string }> {
  const folder = await temporaryFolder()
  const root = join(folder, 'data')
  const outside = join(folder, 'data-of-others')
  await mkdir(join(root, 'set'), { recursive: true })
  await mkdir(outside)
  await writeFile(join(root, 'set', 'text.txt'), 'text')
  await writeFile(join(outside, 'secret'), 'secret')
  await symlink(join(outside, 'secret'), join(root, 'link'))
  await symlink(outside, join(root, 'folder-link'))
  await mkdir(join(root, 'mixed'))
  await symlink(join(outside, 'secret'), join(root, 'mixed', 'train-images-idx3-ubyte'))
  return { root, outside }
}

test('threat 16: a job reads files inside the data root only, whichever way it names them', async () => {
  const { root, outside } = await tree()
  assert.deepEqual(await datasetInside(text('set/text.txt'), root), text(join(root, 'set', 'text.txt')))
  assert.deepEqual(await datasetInside(text(join(root, 'set/text.txt')), root), text(join(root, 'set', 'text.txt')))
  assert.deepEqual(await datasetInside({ source: 'digits' }, root), { source: 'digits' })
  const hostile = [
    '/etc/passwd',
    '../data-of-others/secret',
    'set/../../data-of-others/secret',
    join(outside, 'secret'),
    'link',
    'folder-link/secret',
    'set/none',
    'set/text.txt\0',
    '%2e%2e/data-of-others/secret',
    String.raw`\\host\share\secret`,
    'CON',
    '',
  ]
  for (const path of hostile.slice(0, -1))
    await assert.rejects(datasetInside(text(path), root), { code: 'dataset-unreadable' }, path)
  for (const folder of ['..', outside, 'folder-link', 'mixed'])
    await assert.rejects(datasetInside(mnist(folder), root), { code: 'dataset-unreadable' }, folder)
})

test('threat 16: what is said of a file outside does not tell whether it is there', async () => {
  const { root, outside } = await tree()
  const said = async (path: string): Promise<string> =>
    datasetInside(text(path), root).then(
      () => 'taken',
      (error: unknown) => String(error).replaceAll(path, 'PATH'),
    )
  assert.equal(await said(join(outside, 'secret')), await said(join(outside, 'nothing')))
})

test('threat 16: a submitted job cannot name a file outside the data folder, nor reach jobs and blobs', async () => {
  const { root, outside } = await tree()
  const { url } = await startCoordinator({ dataRoot: root })
  const refused = await submit(url, smallJob({ dataset: text(join(outside, 'secret')) }))
  assert.deepEqual([refused.status, refused.code], [422, 'dataset-unreadable'])
  for (const name of ['..%2f..%2fstate.db', '%2e%2e%2fowner-token', 'CON', '%00', '..%5c..%5cstate.db'])
    for (const route of [ROUTES.shard, ROUTES.job, ROUTES.export, '/assets/:name']) {
      const path = route.replace(/:\w+/, name)
      assert.ok([400, 401, 404].includes((await fetch(url + path)).status), path)
    }
})
