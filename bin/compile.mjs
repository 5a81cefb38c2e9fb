// TypeScript becomes JavaScript once, file by file, in `.cache/compiled-…`, and again when a source changes. Hooks that
// compile while a process imports cost each process 1.5 s of a core in Node 20: hooks share one thread.
import { createHash } from 'node:crypto'
import { mkdirSync, readdirSync, readFileSync, renameSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import { dirname, join, relative, sep } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)))
const ROOT_URL = new URL('../package.json', import.meta.url).href
/** What is compiled otherwise, or by others. */
const SKIPPED = new Set(['node_modules', 'dist', '.tsc'])
/**
 * Packages that are, with what they depend on, 450 small files of every process: each becomes one file, and what
 * several share another. A command starts a quarter sooner for it.
 */
const GATHERED = [
  'typebox',
  'typebox/schema',
  'fastify',
  '@fastify/helmet',
  '@fastify/rate-limit',
  '@fastify/static',
  '@fastify/websocket',
  'ws',
  'pino',
  'prom-client',
  'pg',
  'yaml',
  'commander',
  'protobufjs/light.js',
  'pngjs',
]
/** Names the folder to the processes that a run of the tests starts: it has looked whether a source changed. */
const FRESH = 'STARLING_COMPILED'
const COMPILED = /[\\/]\.cache[\\/]compiled-\w+[\\/](.+)\.js$/
const OWN_PACKAGE = /^@starling-grid\/([\w-]+)(\/.+)?$/
/** Other versions of the compiler, of gathered packages and of this file write into a folder of their own. */
const KEY_LENGTH = 12
/** Of a folder in which this user may not write. */
const UNWRITABLE = new Set(['EACCES', 'EPERM', 'EROFS'])

let folder

/**
 * The URL to import for a TypeScript file of the repository. Every file that changed is compiled first.
 * @throws Error of esbuild when a file is no TypeScript
 */
export async function compiled(source) {
  folder ??= compileAll()
  const out = await folder
  return out === undefined ? String(source) : pathToFileURL(join(out, javaScript(nameOf(source)))).href
}

/** Processes that this one starts from now on need not look whether a source changed. */
export async function compiledForAll() {
  folder ??= compileAll()
  const out = await folder
  if (out !== undefined) process.env[FRESH] = out
}

function nameOf(source) {
  return relative(ROOT, fileURLToPath(source))
}

/** The TypeScript file that a compiled one was made from; the path itself where it is no compiled one. */
export function sourceOf(path) {
  const [, source] = COMPILED.exec(path) ?? []
  return source === undefined ? path : join(ROOT, `${source}.ts`)
}

async function compileAll() {
  const out = join(ROOT, '.cache', `compiled-${keyOfCompiler()}`)
  if (process.env[FRESH] === out) {
    process.setSourceMapsEnabled(true)
    return out
  }
  const stale = sources().filter(({ file, mtime }) => timeOf(join(out, javaScript(file))) !== mtime)
  // Errors name lines of the sources.
  process.setSourceMapsEnabled(true)
  if (stale.length === 0) return out
  try {
    await gather(out)
    await compile(stale, out)
    return out
  } catch (error) {
    if (!UNWRITABLE.has(error.code)) throw error
    console.error(`What is compiled cannot be kept in ${out} (${error.code}), so each start takes longer.`)
    const { register } = await import('tsx/esm/api')
    register()
    return undefined
  }
}

async function gather(out) {
  if (GATHERED.every((name) => timeOf(gatheredFile(out, name)) !== undefined)) return
  const { build } = await import('esbuild')
  const { outputFiles } = await build({
    entryPoints: GATHERED.map((name) => ({ in: `gathered:${name}`, out: fileNameOf(name) })),
    absWorkingDir: ROOT,
    outdir: join(out, 'gathered'),
    bundle: true,
    splitting: true,
    minifyWhitespace: true,
    write: false,
    format: 'esm',
    platform: 'node',
    target: 'node20',
    banner: {
      js: `import { createRequire } from 'node:module';const require = createRequire(${JSON.stringify(ROOT_URL)});`,
    },
    logLevel: 'error',
    plugins: [gatheredPackages],
  })
  // What is shared first: a package that is there is there whole.
  const entries = new Set(GATHERED.map((name) => gatheredFile(out, name)))
  for (const { path, contents } of outputFiles.sort((a, b) => entries.has(a.path) - entries.has(b.path)))
    writeWhole(path, contents)
}

/** Each entry exports by name what Node finds in the package, also where the package is CommonJS. */
const gatheredPackages = {
  name: 'gathered-packages',
  setup(build) {
    build.onResolve({ filter: /^gathered:/ }, ({ path }) => ({
      path: path.replace('gathered:', ''),
      namespace: 'gathered',
    }))
    build.onLoad({ filter: /./, namespace: 'gathered' }, async ({ path }) => {
      const names = Object.keys(await import(path)).filter((name) => /^[\w$]+$/.test(name))
      return { contents: `export { ${names.join(', ')} } from ${JSON.stringify(path)}`, resolveDir: ROOT }
    })
    // Files beside a source are found beside the source.
    build.onLoad({ filter: /node_modules.*\.c?js$/ }, ({ path }) => {
      const text = readFileSync(path, 'utf8')
      if (!/\b__(?:dir|file)name\b/.test(text)) return undefined
      const [file, folder] = [path, dirname(path)].map((name) => JSON.stringify(name))
      return { contents: `const __filename = ${file}, __dirname = ${folder};${text}`, loader: 'js' }
    })
  },
}

function gatheredFile(out, name) {
  return join(out, 'gathered', `${fileNameOf(name)}.js`)
}

function fileNameOf(name) {
  return name.replace('@', '').replace(/\.js$/, '').replaceAll('/', '-')
}

/** A file appears when it is whole, however many processes compile at once; its time is its source's. */
async function compile(stale, out) {
  const { build } = await import('esbuild')
  const { outputFiles } = await build({
    entryPoints: stale.map(({ file }) => join(ROOT, file)),
    outbase: ROOT,
    outdir: out,
    write: false,
    bundle: true, // for the names of imports; each stays a file of its own
    treeShaking: false,
    format: 'esm',
    platform: 'node',
    target: 'node20',
    sourcemap: 'linked',
    sourcesContent: false,
    define: { 'import.meta.url': '__source' },
    logLevel: 'error',
    plugins: [namesOfImports(out)],
  })
  const times = new Map(stale.map(({ file, mtime }) => [join(out, javaScript(file)), mtime]))
  // Source maps first: a compiled file that is there has its map.
  for (const { path, contents } of outputFiles.sort((a, b) => b.path.length - a.path.length))
    writeWhole(path, contents, times.get(path))
}

function writeWhole(path, contents, mtime) {
  mkdirSync(dirname(path), { recursive: true })
  const partial = `${path}.${process.pid}.partial`
  writeFileSync(partial, contents)
  if (mtime !== undefined) utimesSync(partial, (mtime + 0.5) / 1000, (mtime + 0.5) / 1000)
  renameSync(partial, path)
}

/** Imports of our TypeScript lead to what it is compiled to; all others stay as they are. */
function namesOfImports(out) {
  const packages = new Map()
  const gathered = new Map(GATHERED.map((name) => [name, gatheredFile(out, name)]))
  /** The file that an import reads; undefined for a package, which Node finds. */
  const targetOf = (path, resolveDir) => {
    if (gathered.has(path)) return gathered.get(path)
    const source = OWN_PACKAGE.test(path) ? ownSource(path, packages) : path.startsWith('.') && join(resolveDir, path)
    if (!source) return undefined
    return source.endsWith('.ts') ? join(out, javaScript(relative(ROOT, source))) : source
  }
  return {
    name: 'names-of-imports',
    setup(build) {
      build.onResolve({ filter: /./ }, ({ kind, path, importer, resolveDir }) => {
        if (kind === 'entry-point') return undefined
        const target = targetOf(path, resolveDir)
        if (target === undefined) return { path, external: true }
        const name = relative(dirname(join(out, relative(ROOT, importer))), target)
        return { path: (name.startsWith('.') ? name : `./${name}`).split(sep).join('/'), external: true }
      })
      // Files beside a source are found beside the source.
      build.onLoad({ filter: /\.ts$/ }, ({ path }) => ({
        contents: `const __source = ${JSON.stringify(pathToFileURL(path).href)};${readFileSync(path, 'utf8')}`,
        loader: 'ts',
      }))
    },
  }
}

/** The file behind a name that a package of the repository exports. */
function ownSource(name, packages) {
  const [, folder, sub = ''] = OWN_PACKAGE.exec(name)
  if (!packages.has(folder))
    packages.set(folder, JSON.parse(readFileSync(join(ROOT, folder, 'package.json'), 'utf8')).exports)
  return join(ROOT, folder, packages.get(folder)[`.${sub}`])
}

function sources() {
  const { workspaces } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))
  return [...workspaces, 'examples'].flatMap((name) => sourcesIn(join(ROOT, name)))
}

function sourcesIn(path) {
  if (timeOf(path) === undefined) return []
  return readdirSync(path, { withFileTypes: true }).flatMap((entry) => {
    const inside = join(path, entry.name)
    if (entry.isDirectory()) return SKIPPED.has(entry.name) ? [] : sourcesIn(inside)
    const isSource = entry.name.endsWith('.ts') && !entry.name.endsWith('.d.ts')
    return isSource ? [{ file: relative(ROOT, inside), mtime: timeOf(inside) }] : []
  })
}

/** ms, whole; undefined when there is no such file */
function timeOf(path) {
  const stat = statSync(path, { throwIfNoEntry: false })
  return stat && Math.trunc(stat.mtimeMs)
}

function javaScript(file) {
  return file.replace(/\.ts$/, '.js')
}

function keyOfCompiler() {
  const hash = createHash('sha256').update(readFileSync(fileURLToPath(import.meta.url)))
  hash.update(readFileSync(join(ROOT, 'package-lock.json')))
  return hash.digest('hex').slice(0, KEY_LENGTH)
}
