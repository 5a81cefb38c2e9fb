// TypeScript becomes JavaScript once, file by file, in `.cache/compiled-…`, and again when a source changes. Hooks that
// compile while a process imports cost each process 1.5 s of a core in Node 20: hooks share one thread.
import { createHash } from 'node:crypto'
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import module from 'node:module'
import { dirname, join, relative, resolve, sep } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { gathered as gatheredModules, groupsOf } from './gather-modules.mjs'

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
/** Of one build: what the compiler does for each looks at all, and for all sources at once it takes twice as long. */
const BUILD_FILES = 100
/** Names the folder to the processes that a run of the tests starts: it has looked whether a source changed. */
const FRESH = 'STARLING_COMPILED'
const COMPILED = /[\\/]\.cache[\\/]compiled-\w+[\\/](.+)\.js$/
const OWN_PACKAGE = /^@starling-grid\/([\w-]+)(\/.+)?$/
/** The compiler does not say what comes with it. */
const EXPORTS_ALL = /^export \* from\b/m
/** Other versions of the compiler, of gathered packages and of this file write into a folder of their own. */
const KEY_LENGTH = 12
/** Of a folder in which this user may not write. */
const UNWRITABLE = new Set(['EACCES', 'EPERM', 'EROFS'])

const OPTIONS = {
  absWorkingDir: ROOT,
  write: false,
  bundle: true, // for the names of imports; each stays a file of its own
  format: 'esm',
  platform: 'node',
  target: 'node20',
  sourcemap: 'linked',
  sourcesContent: false,
  define: { 'import.meta.url': '__source' },
  logLevel: 'error',
}

let folder

/**
 * The URL to import for a TypeScript file of the repository. Every file that changed is compiled first.
 * @throws Error of esbuild when a file is no TypeScript
 */
export async function compiled(source) {
  // Node 22 and later keep what they make of JavaScript, too.
  module.enableCompileCache?.(join(ROOT, '.cache', 'bytecode'))
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

/**
 * For a tree whose lines change one at a time: compiles what changed since the last call, and each module stays a file
 * of its own, since otherwise its whole package is compiled again. Processes with this in their environment need not
 * look whether a source changed.
 */
export async function compiledOneByOne() {
  const out = await compileAll({ areGathered: false })
  return out === undefined ? {} : { [FRESH]: out }
}

function nameOf(source) {
  return relative(ROOT, fileURLToPath(source))
}

/** The TypeScript file that a compiled one was made from; the path itself where it is no compiled one. */
export function sourceOf(path) {
  const [, source] = COMPILED.exec(path) ?? []
  return source === undefined ? path : join(ROOT, `${source}.ts`)
}

async function compileAll({ areGathered } = { areGathered: true }) {
  const out = join(ROOT, '.cache', `compiled-${keyOfCompiler()}`)
  if (process.env[FRESH] === out) {
    process.setSourceMapsEnabled(true)
    return out
  }
  const stale = areGathered ? staleSources(out) : sources().filter(isStaleIn(out))
  // Errors name lines of the sources.
  process.setSourceMapsEnabled(true)
  if (stale.length === 0) return out
  try {
    await gather(out)
    await compile(stale, out, areGathered)
    return out
  } catch (error) {
    if (!UNWRITABLE.has(error.code)) throw error
    console.error(`What is compiled cannot be kept in ${out} (${error.code}), so each start takes longer.`)
    const { register } = await import('tsx/esm/api')
    register()
    return undefined
  }
}

/** All of a package where one of its modules changed: they share files. */
function staleSources(out) {
  const all = sources()
  const isStale = isStaleIn(out)
  const changed = new Set(all.filter(isStale).filter(isModule).map(packageOf))
  return all.filter((source) => (isModule(source) ? changed.has(packageOf(source)) : isStale(source)))
}

function isStaleIn(out) {
  return ({ file, mtime }) => timeOf(join(out, javaScript(file))) !== mtime
}

/** No test: those import others, and no other imports them. */
function isModule({ file }) {
  return file.split(sep)[1] !== 'test'
}

function packageOf({ file }) {
  return file.split(sep)[0]
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
async function compile(stale, out, areGathered) {
  const parts = Array.from({ length: Math.ceil(stale.length / BUILD_FILES) }, (_, i) => i * BUILD_FILES)
  const builds = await Promise.all(parts.map((first) => buildEach(stale.slice(first, first + BUILD_FILES), out)))
  const outputFiles = builds.flatMap((one) => one.outputFiles)
  const outputs = Object.assign({}, ...builds.map(({ metafile }) => metafile.outputs))
  const lines = areGathered ? await gatherModules(modulesOf(outputs, out), out) : new Map()
  const times = new Map(stale.map(({ file, mtime }) => [join(out, javaScript(file)), mtime]))
  // Source maps first: a compiled file that is there has its map.
  for (const { path, contents } of outputFiles.sort((a, b) => b.path.length - a.path.length))
    writeWhole(path, lines.get(path) ?? contents, times.get(path))
}

async function buildEach(stale, out) {
  const { build } = await import('esbuild')
  return build({
    ...OPTIONS,
    entryPoints: stale.map(({ file }) => join(ROOT, file)),
    outbase: ROOT,
    outdir: out,
    treeShaking: false,
    metafile: true,
    plugins: [namesOfImports(out)],
  })
}

/** What each source exports, and what of our sources it imports at once. */
function modulesOf(outputs, out) {
  const compiledTo = Object.entries(outputs).filter(([, { entryPoint }]) => entryPoint !== undefined)
  return new Map(
    compiledTo.map(([path, { entryPoint, exports, imports }]) => {
      const folder = dirname(join(ROOT, path))
      const own = imports.filter((one) => one.kind === 'import-statement' && one.path.startsWith('.'))
      const files = own.map((one) => relative(out, join(folder, one.path)).replace(/\.js$/, '.ts'))
      const isListed = !EXPORTS_ALL.test(readFileSync(join(ROOT, entryPoint), 'utf8'))
      return [entryPoint, { exports, imports: files, isListed }]
    }),
  )
}

/** The files that modules share are written here. Resolves with the line that stands for each, by its path. */
async function gatherModules(modules, out) {
  const lines = new Map()
  for (const folder of new Set([...modules.keys()].map((file) => packageOf({ file })))) {
    const own = new Map([...modules].filter(([file]) => packageOf({ file }) === folder && isModule({ file })))
    const groups = groupsOf(facesOf(folder), own)
    if (groups.length === 0) continue
    const { outdir, lines: ownLines, entryPoints, plugin } = gatheredModules(groups, own, { root: ROOT, out, folder })
    await writeGathered({ outdir, entryPoints, plugins: [plugin, namesOfImports(out, { outdir, inside: ownLines })] })
    for (const [file, line] of ownLines) lines.set(join(out, javaScript(file)), line)
  }
  return lines
}

async function writeGathered({ outdir, entryPoints, plugins }) {
  const { build } = await import('esbuild')
  const { outputFiles } = await build({
    ...OPTIONS,
    entryPoints,
    outdir,
    chunkNames: '[hash]',
    splitting: true,
    plugins,
  })
  for (const { path, contents } of outputFiles.sort((a, b) => b.path.length - a.path.length)) writeWhole(path, contents)
  const written = new Set(outputFiles.map(({ path }) => path))
  for (const name of readdirSync(outdir)) {
    const path = join(outdir, name)
    if (!written.has(path) && !name.endsWith('.partial')) rmSync(path, { force: true })
  }
}

/** Sources that other packages import. */
function facesOf(folder) {
  const file = join(ROOT, folder, 'package.json')
  const { exports = {} } = timeOf(file) === undefined ? {} : JSON.parse(readFileSync(file, 'utf8'))
  return Object.values(exports).map((path) => join(folder, path))
}

function writeWhole(path, contents, mtime) {
  mkdirSync(dirname(path), { recursive: true })
  const partial = `${path}.${process.pid}.partial`
  writeFileSync(partial, contents)
  if (mtime !== undefined) utimesSync(partial, (mtime + 0.5) / 1000, (mtime + 0.5) / 1000)
  renameSync(partial, path)
}

/**
 * Imports of our TypeScript lead to what it is compiled to; all others stay as they are. `gathered`: where the sources
 * inside share files.
 */
function namesOfImports(out, gathered) {
  const packages = new Map()
  const external = new Map(GATHERED.map((name) => [name, gatheredFile(out, name)]))
  /** The file that an import reads; undefined for a package, which Node finds. */
  const targetOf = (path, resolveDir) => {
    if (external.has(path)) return external.get(path)
    const source = OWN_PACKAGE.test(path) ? ownSource(path, packages) : /^[./]/.test(path) && resolve(resolveDir, path)
    return source || undefined
  }
  return {
    name: 'names-of-imports',
    setup(build) {
      build.onResolve({ filter: /./ }, ({ kind, path, importer, resolveDir }) => {
        if (kind === 'entry-point') return undefined
        const target = targetOf(path, resolveDir)
        if (target === undefined) return { path, external: true }
        const source = relative(ROOT, target)
        if (kind === 'import-statement' && gathered?.inside.has(source)) return { path: target }
        const file = target.endsWith('.ts') ? join(out, javaScript(source)) : target
        const name = relative(gathered?.outdir ?? dirname(join(out, relative(ROOT, importer))), file)
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
  const hash = createHash('sha256')
  for (const file of ['bin/compile.mjs', 'bin/gather-modules.mjs', 'package-lock.json'])
    hash.update(readFileSync(join(ROOT, file)))
  return hash.digest('hex').slice(0, KEY_LENGTH)
}
