// How the two pages are built. Every file is an own request: inlined kernels would be `data:` URLs, which our CSP
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

const treeshake = { moduleSideEffects: (id: string): boolean => !WITHOUT_SIDE_EFFECTS.test(id) }

/**
 * Checks of email addresses, URIs and the like, 15 kB of every schema's engine. No schema of ours names a format; one
 * that did would fail here.
 */
const FORMATS = /\/typebox\/build\/format\/format\.mjs$/
const withoutFormats: Plugin = {
  name: 'without-formats',
  load: (id) =>
    FORMATS.test(id)
      ? 'export const Test = (format) => { throw new ' +
        'Error(`internal: pages know no format, not ${format} either`) }; export const Has = Test; ' +
        'export const Get = Test'
      : null,
}

export const webPageConfig = {
  root: here('.'),
  base: '/',
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  plugins: [withoutFormats],
  worker: { format: 'es', plugins: () => [withoutFormats], rolldownOptions: { treeshake } },
  build: {
    outDir: here('dist/by-hand'),
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: 'es2022',
    rolldownOptions: {
      input: { index: here('index.html'), dashboard: here('dashboard.html') },
      treeshake,
      checks: { bundlerTimings: false }, // how long the plugins take tells a user nothing
    },
  },
} satisfies UserConfig

export default webPageConfig
