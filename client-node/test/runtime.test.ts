import assert from 'node:assert/strict'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { isGridError } from '@starling-grid/protocol'
import { ADAPTER_CHOICE, adapterEnvironment } from '../src/runtime/adapter-environment.ts'
import { bundleRunsHere } from '../src/runtime/bundle.ts'
import { cacheFolder, exists, filledOnce } from '../src/runtime/cache-folder.ts'
import { findChromium } from '../src/runtime/chromium.ts'
import { softwareAdapter } from '../src/runtime/software-adapter.ts'

const usual = process.env['STARLING_CACHE']
let folder: string

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'starling-cache-'))
  process.env['STARLING_CACHE'] = folder
})

after(async () => {
  if (usual === undefined) delete process.env['STARLING_CACHE']
  else process.env['STARLING_CACHE'] = usual
  await rm(folder, { recursive: true, force: true })
})

test('the cache is where STARLING_CACHE, then XDG_CACHE_HOME, says', () => {
  assert.equal(cacheFolder({ STARLING_CACHE: '/a/b', XDG_CACHE_HOME: '/c' }), '/a/b')
  assert.equal(cacheFolder({ XDG_CACHE_HOME: '/c' }), '/c/starling')
})

test('three that unpack at once get one whole folder and leave nothing else behind', async () => {
  const fill = (text: string) => async (into: string) => {
    await writeFile(join(into, 'a'), text)
    await writeFile(join(into, 'b'), text)
  }
  const folders = await Promise.all(['1', '2', '3'].map((text) => filledOnce('race', fill(text))))
  assert.deepEqual(new Set(folders), new Set([join(folder, 'race')]))
  const [a, b] = await Promise.all(['a', 'b'].map((file) => readFile(join(folder, 'race', file), 'utf8')))
  assert.equal(a, b)
  assert.deepEqual(
    (await readdir(folder)).filter((name) => name.startsWith('race')),
    ['race'],
  )
})

test('an unpacking that fails leaves nothing behind and names the variable that helps', async () => {
  await assert.rejects(
    filledOnce('broken', () => Promise.reject(new Error('no space left'))),
    (error) => isGridError(error) && error.code === 'folder-unwritable' && error.message.includes('STARLING_CACHE'),
  )
  assert.deepEqual(
    (await readdir(folder)).filter((name) => name.startsWith('broken')),
    [],
  )
})

test('the bundled software adapter is whole', { skip: !bundleRunsHere && 'the bundle is for Linux x64' }, async () => {
  const { icd, libraryPath } = await softwareAdapter()
  for (const path of [icd, join(libraryPath, 'libvulkan.so.1')]) assert.ok(await exists(path), path)
})

test('an environment that a parent process prepared is kept as it is', async () => {
  const env = { [ADAPTER_CHOICE]: 'chosen before', PATH: '/bin' }
  assert.deepEqual(await adapterEnvironment({}, env), { env, description: 'chosen before' })
})

test(
  'drivers that the user named are not replaced, and are named when they do not work',
  { skip: process.platform !== 'linux' && 'Vulkan drivers are named on Linux' },
  async () => {
    const { env, description } = await adapterEnvironment({}, { ...withoutChoice(), VK_DRIVER_FILES: '/nowhere.json' })
    assert.equal(env['VK_DRIVER_FILES'], '/nowhere.json')
    assert.match(description, /^none .*VK_DRIVER_FILES/)
  },
)

test('a STARLING_CHROMIUM that does not exist is refused by its name', async () => {
  await assert.rejects(
    findChromium({ STARLING_CHROMIUM: '/nowhere/chrome' }),
    (error) => isGridError(error) && error.code === 'browser-missing' && error.message.includes('/nowhere/chrome'),
  )
})

function withoutChoice(): NodeJS.ProcessEnv {
  const { [ADAPTER_CHOICE]: _choice, VK_ICD_FILENAMES: _drivers, ...env } = process.env
  return env
}
