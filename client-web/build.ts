// Users have no build step: the server requests the pages here, and they are built when their sources changed.
import { createHash, randomBytes } from 'node:crypto'
import { readdir, readFile, rename, rm, stat } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { webPageConfig } from './vite.config.ts'

const REPOSITORY = fileURLToPath(new URL('..', import.meta.url))
const BUILT = fileURLToPath(new URL('dist', import.meta.url))
/** Everything that a build reads. */
const SOURCES = [
  'client-web/index.html',
  'client-web/dashboard.html',
  'client-web/api.html',
  'client-web/vite.config.ts',
  'client-web/public',
  'client-web/src',
  'volunteer/src',
  'shaders/src',
  'shaders/kernels',
  'model/src',
  'protocol/src',
  'package-lock.json',
]
/** A coordinator may still serve files of an older build; after a day its pages have been reloaded. */
const KEEP_OLD_BUILDS_MS = 24 * 60 * 60 * 1000
const HASH_LENGTH = 16

/**
 * The folder of the built pages: `index.html`, `dashboard.html`, `api.html` and their assets. Builds them first when
 * their sources changed.
 * @example
 * const folder = await ensureWebPage((line) => console.error(line))
 */
export async function ensureWebPage(log: (line: string) => void): Promise<string> {
  const final = join(BUILT, await hashOfSources())
  if (await exists(final)) return final
  const started = performance.now()
  log('Building the web page (only after a change) …')
  await buildInto(final)
  await removeOldBuilds(final)
  log(`Built the web page in ${((performance.now() - started) / 1000).toFixed(1)} s.`)
  return final
}

/** A build appears under its final name only when it is whole, however many processes build at once. */
async function buildInto(final: string): Promise<void> {
  const partial = `${final}.${process.pid}-${randomBytes(4).toString('hex')}.partial`
  try {
    await runVite(partial)
    await rename(partial, final)
  } catch (error) {
    // Another process may have been first; its build is as good as ours.
    if (!(await exists(final))) throw error
  } finally {
    await rm(partial, { recursive: true, force: true })
  }
}

async function runVite(outDir: string): Promise<void> {
  // Vite sets NODE_ENV for the whole process, which belongs to the caller here.
  const before = process.env['NODE_ENV']
  const { build } = await import('vite') // late: it takes longer to load than everything else, and is rarely needed
  try {
    await build({
      ...webPageConfig,
      configFile: false,
      logLevel: 'warn',
      build: { ...webPageConfig.build, outDir, emptyOutDir: true },
    })
  } finally {
    if (before === undefined) delete process.env['NODE_ENV']
    else process.env['NODE_ENV'] = before
  }
}

async function hashOfSources(): Promise<string> {
  const hash = createHash('sha256')
  for (const source of SOURCES)
    for (const file of await filesUnder(join(REPOSITORY, source)))
      hash
        .update(`${relative(REPOSITORY, file)}\n`)
        .update(await readFile(file))
        .update('\n')
  return hash.digest('hex').slice(0, HASH_LENGTH)
}

/** All files below a path in a fixed order; the path itself when it is a file; nothing when it does not exist. */
async function filesUnder(path: string): Promise<string[]> {
  const found = await stat(path).catch(() => undefined)
  if (found === undefined) return []
  if (found.isFile()) return [path]
  const entries = await readdir(path)
  return (await Promise.all(entries.sort().map((entry) => filesUnder(join(path, entry))))).flat()
}

async function removeOldBuilds(current: string): Promise<void> {
  for (const entry of await readdir(BUILT)) {
    const path = join(BUILT, entry)
    const age = await stat(path).then(
      (found) => Date.now() - found.mtimeMs,
      () => 0,
    )
    if (path !== current && age > KEEP_OLD_BUILDS_MS) await rm(path, { recursive: true, force: true })
  }
}

async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  )
}
