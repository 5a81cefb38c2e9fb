// A package of the repository has some hundred small files, and Node spends a millisecond of a core on each that it
// loads. So modules that are always loaded together become one file. A module keeps its path as a file of one
// line: who imports it alone gets it from there, and each module is loaded once, whatever way leads to it.
import { join, relative, sep } from 'node:path'

/** Below the folder of what is compiled. */
const GATHERED_MODULES = 'modules'

/**
 * @typedef {object} Module what a source is compiled to
 * @property {readonly string[]} exports names
 * @property {readonly string[]} imports sources that are loaded with it
 * @property {boolean} isListed its exports are all known: it has no `export *`
 */

/**
 * Modules of one package that the same of its beginnings load: one group each. A package begins with its faces, and
 * with what no other of its modules imports: that begins a process or a thread, or is loaded when it is needed. The
 * latter stay files of their own, since some of them act when they are loaded; so do modules that are alone.
 * @param {readonly string[]} faces sources that other packages import
 * @param {ReadonlyMap<string, Module>} modules of the package, by source
 * @returns {{ readonly begins: ReadonlySet<string>, readonly sources: readonly string[] }[]}
 */
export function groupsOf(faces, modules) {
  const imported = new Set([...modules.values()].flatMap(({ imports }) => imports))
  const roots = [...modules.keys()].filter((source) => !imported.has(source))
  const loadedBy = new Map()
  const load = (beginning, source) => {
    const already = loadedBy.get(source) ?? new Set()
    if (!modules.has(source) || already.has(beginning)) return
    loadedBy.set(source, already.add(beginning))
    for (const one of modules.get(source).imports) load(beginning, one)
  }
  for (const beginning of new Set([...faces, ...roots])) load(beginning, beginning)
  for (const source of [...roots, ...[...modules.keys()].filter((one) => !modules.get(one).isListed)])
    loadedBy.delete(source)
  const groups = new Map()
  for (const [source, by] of loadedBy) {
    const key = [...by].sort().join()
    groups.set(key, { begins: by, sources: [...(groups.get(key)?.sources ?? []), source] })
  }
  return [...groups.values()].filter(({ sources }) => sources.length > 1)
}

/**
 * @param {ReturnType<typeof groupsOf>} groups
 * @param {ReadonlyMap<string, Module>} modules by source
 * @param {{ root: string, out: string, folder: string }} places of the sources, of what is compiled, of the package
 * @returns entry points, a plugin that knows them, and the line that each module becomes, by source
 */
export function gathered(groups, modules, { root, out, folder }) {
  const outdir = join(out, GATHERED_MODULES, folder)
  const lines = new Map()
  const entries = groups.map(({ begins, sources }, at) => {
    const own = sources.map((source, place) => {
      const names = modules.get(source).exports
      const file = relative(join(out, source, '..'), join(outdir, `${at}.js`))
        .split(sep)
        .join('/')
      lines.set(
        source,
        reExport(names, (name) => [`m${place}_${name}`, name], file),
      )
      return reExport(names, (name) => [name, `m${place}_${name}`], `./${source.split(sep).join('/')}`)
    })
    // What is loaded with any of a group is loaded with all of it: otherwise it would be cut into more files.
    const common = groups.flatMap((other, i) =>
      i !== at && [...begins].every((one) => other.begins.has(one)) ? [`import 'group:${i}'`] : [],
    )
    return [...own, ...common].join('\n')
  })
  return {
    outdir,
    lines,
    entryPoints: entries.map((_, i) => ({ in: `group:${i}`, out: String(i) })),
    plugin: entriesOf(entries, root),
  }
}

function reExport(names, rename, file) {
  const pairs = names.map((name) => rename(name).join(' as '))
  return `export { ${pairs.join(', ')} } from ${JSON.stringify(file)}`
}

function entriesOf(entries, root) {
  return {
    name: 'groups-of-modules',
    setup(build) {
      build.onResolve({ filter: /^group:/ }, ({ path }) => ({ path: path.replace('group:', ''), namespace: 'group' }))
      build.onLoad({ filter: /./, namespace: 'group' }, ({ path }) => ({ contents: entries[path], resolveDir: root }))
    },
  }
}
