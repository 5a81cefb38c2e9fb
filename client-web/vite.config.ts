// How the pages are built. Every file is an own request: inlined kernels would be `data:` URLs, which our CSP
// refuses.
import { fileURLToPath } from 'node:url'
// Its types only: every start of a coordinator reads this file, and Vite takes most of a second to load.
import type { Plugin, UserConfig } from 'vite'

const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url))
/**
 * Libraries that run nothing when they are imported. Without this the pages would carry every schema of the protocol,
 * and typebox's parser and evaluator of types, which no schema of ours needs.
 */
const WITHOUT_SIDE_EFFECTS = /\/(protocol|shaders|model|volunteer)\/src\/|\/node_modules\/(typebox|@noble\/hashes)\//

/** What makes schemas runs nothing else: those that no page uses are left out. */
const PURE = ['Type', 'strict']

const treeshake = {
  moduleSideEffects: (id: string): boolean => !WITHOUT_SIDE_EFFECTS.test(id),
  manualPureFunctions: PURE,
}

/**
 * Keywords that no schema of ours uses, each a file of every schema's engine, 10 kB together. A schema that did use one
 * would fail here.
 */
export const UNUSED_KEYWORDS = [
  '$dynamicRef',
  '$recursiveRef',
  '$ref',
  'allOf',
  'contains',
  'dependencies',
  'dependentRequired',
  'dependentSchemas',
  'format',
  'if',
  'maxContains',
  'minContains',
  'multipleOf',
  'oneOf',
  'prefixItems',
  'propertyNames',
  'unevaluatedItems',
  'unevaluatedProperties',
  'uniqueItems',
]

/** What else of the engine only they use, 20 kB, with what it exports. */
const UNUSED_HELPERS: readonly (readonly [path: RegExp, keyword: string, names: readonly string[]])[] = [
  [/\/typebox\/build\/format\/format\.mjs$/, 'format', ['Test', 'Has', 'Get']],
  [/\/typebox\/build\/schema\/resolve\/resolve\.mjs$/, '$ref', ['Ref', 'RecursiveRef', 'DynamicRef']],
  [/\/typebox\/build\/system\/hashing\/hash\.mjs$/, 'uniqueItems', ['Hash', 'HashCode']],
]

const UNUSED = [
  ...UNUSED_HELPERS,
  ...UNUSED_KEYWORDS.map((keyword) => {
    const [first = '', ...rest] = keyword.replace('$', '')
    const names = ['Build', 'Check', 'Error'].map((act) => `${act}${first.toUpperCase()}${rest.join('')}`)
    return [new RegExp(`/typebox/build/schema/engine/${first}${rest.join('')}\\.mjs$`), keyword, names] as const
  }),
]
const withoutUnused: Plugin = {
  name: 'without-unused-keywords',
  load: (id) => {
    const [, keyword, names] = UNUSED.find(([path]) => path.test(id)) ?? []
    if (names === undefined) return null
    const fail = `() => { throw new Error('internal: pages know no schema with ${keyword}') }`
    return names.map((name) => `export const ${name} = ${fail}`).join('\n')
  },
}

export const webPageConfig = {
  root: here('.'),
  base: '/',
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  plugins: [withoutUnused],
  worker: { format: 'es', plugins: () => [withoutUnused], rolldownOptions: { treeshake } },
  build: {
    outDir: here('dist/by-hand'),
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: 'es2022',
    rolldownOptions: {
      input: { index: here('index.html'), dashboard: here('dashboard.html'), api: here('api.html') },
      treeshake,
      checks: { bundlerTimings: false }, // how long the plugins take tells a user nothing
    },
  },
} satisfies UserConfig

export default webPageConfig
