// What `npm ci` fetches is what was chosen here: exact versions, each with the hash of its archive, and nothing runs on
// install.
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { test } from 'node:test'

interface LockedPackage {
  readonly link?: boolean
  readonly integrity?: string
  readonly resolved?: string
  readonly hasInstallScript?: boolean
}

interface Manifest {
  readonly workspaces?: readonly string[]
  readonly dependencies?: Readonly<Record<string, string>>
  readonly devDependencies?: Readonly<Record<string, string>>
  readonly optionalDependencies?: Readonly<Record<string, string>>
  readonly overrides?: Readonly<Record<string, string>>
}

const EXACT = /^\d+\.\d+\.\d+(-[\w.]+)?$/
const SHA512 = /^sha512-[A-Za-z0-9+/]{86}==$/

/**
 * Packages that would run a program when they are installed, and why they work without it. Install scripts are off
 * (.npmrc). A new name needs the same proof: a fresh clone with an empty cache in which `npm install && npm run demo`
 * trains.
 */
const WORKS_WITHOUT_ITS_SCRIPT: Readonly<Record<string, string>> = {
  'node_modules/esbuild':
    'its script only makes the start of its command line faster; the binary is a package of its own',
  'node_modules/webgpu': 'its script only takes a download mark from the binary on macOS, which npm does not set',
}

async function read(path: string): Promise<string> {
  return readFile(new URL(`../../${path}`, import.meta.url), 'utf8')
}

const lock = JSON.parse(await read('package-lock.json')) as {
  readonly packages: Readonly<Record<string, LockedPackage>>
}
const fetched = Object.entries(lock.packages).filter(
  ([path, { link }]) => path.includes('node_modules/') && link !== true,
)

test('threat 57: every package of the lockfile has the hash of its archive', () => {
  assert.ok(fetched.length > 150, `${fetched.length} packages`)
  assert.deepEqual(
    fetched.filter(([, { integrity }]) => !SHA512.test(integrity ?? '')).map(([path]) => path),
    [],
  )
})

test('the lockfile names no registry, so that each installation asks its own', () => {
  assert.deepEqual(
    fetched.filter(([, { resolved }]) => resolved !== undefined),
    [],
  )
  assert.doesNotMatch(JSON.stringify(lock.packages), /"resolved":"[a-z+]+:/)
})

test('every dependency is asked for by one exact version', async () => {
  const root = JSON.parse(await read('package.json')) as Manifest
  for (const folder of ['.', ...(root.workspaces ?? [])]) {
    const { dependencies, devDependencies, optionalDependencies, overrides } = JSON.parse(
      await read(`${folder}/package.json`),
    ) as Manifest
    for (const [name, version] of Object.entries({
      ...dependencies,
      ...devDependencies,
      ...optionalDependencies,
      ...overrides,
    }))
      assert.match(version, EXACT, `${folder}/package.json: ${name}`)
  }
})

test('threat 57: no package runs a program when it is installed', async () => {
  assert.match(await read('.npmrc'), /^ignore-scripts=true$/m)
  const scripted = fetched.filter(([, { hasInstallScript }]) => hasInstallScript === true).map(([path]) => path)
  assert.deepEqual(scripted, Object.keys(WORKS_WITHOUT_ITS_SCRIPT))
})

test('what the checks fetch beside the lockfile has an exact version', async () => {
  const commands = (await read('.ci/run')).split('\n').filter((line) => line.startsWith('npx '))
  assert.ok(commands.length > 0)
  for (const command of commands) assert.match(command, / -p \S*( -p process\.arch\))?@\d+\.\d+\.\d+"? /, command)
})
