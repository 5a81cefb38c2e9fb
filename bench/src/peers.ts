// The libraries that we compare with. They have a package of their own in bench/peers, so that a volunteer's
// installation does not download them. It is installed when a benchmark asks for it, and a benchmark goes on without a
// peer that cannot be had.
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import type { Missing } from './library.ts'

const FOLDER = new URL('../peers/', import.meta.url)
const INSTALL_LIMIT_MS = 300_000
/** module → a package that it needs */
const MODULES: Readonly<Record<string, string>> = { tfjs: '@tensorflow/tfjs-core', jax: '@jax-js/jax' }
/** What tfjs-wasm fetches while it starts; the page serves it beside itself. */
const WASM_FILES = ['tfjs-backend-wasm.wasm', 'tfjs-backend-wasm-simd.wasm', 'tfjs-backend-wasm-threaded-simd.wasm']

export interface Peers {
  readonly modules: Readonly<Record<string, URL>>
  readonly files: Readonly<Record<string, string>>
  readonly missing: readonly Missing[]
}

export function findPeers(log: (line: string) => void): Peers {
  const failure = Object.values(MODULES).every(installed) ? undefined : install(log)
  const present = Object.entries(MODULES)
    .filter(([, name]) => installed(name))
    .map(([module]) => module)
  const missing = Object.keys(MODULES)
    .filter((module) => !present.includes(module))
    .map((name) => ({ name, reason: failure ?? 'it is not in bench/peers' }))
  const wasm = (file: string) =>
    fileURLToPath(new URL(`node_modules/@tensorflow/tfjs-backend-wasm/dist/${file}`, FOLDER))
  return {
    modules: Object.fromEntries(present.map((module) => [module, new URL(`${module}.ts`, FOLDER)])),
    files: Object.fromEntries(WASM_FILES.map((file) => [file, wasm(file)])),
    missing,
  }
}

function installed(name: string): boolean {
  return existsSync(new URL(`node_modules/${name}/package.json`, FOLDER))
}

/** @returns why it failed, if it did */
function install(log: (line: string) => void): string | undefined {
  log('Installing the libraries to compare with into bench/peers (86 MB, only once) …')
  const { status, stderr, error } = spawnSync(
    'npm',
    ['ci', '--ignore-scripts', '--no-audit', '--no-fund', '--prefix', fileURLToPath(FOLDER)],
    { encoding: 'utf8', timeout: INSTALL_LIMIT_MS },
  )
  if (status === 0) return undefined
  const reason = `npm ci in bench/peers failed: ${error?.message ?? stderr.trim().split('\n').at(-1) ?? status}`
  log(`${reason}. Going on without them.`)
  return reason
}
