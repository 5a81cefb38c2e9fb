// How the two pages are built. Every file is an own request: inlined kernels would be `data:` URLs, which our CSP refuses.
import { fileURLToPath } from 'node:url'
// Its types only: every start of a coordinator reads this file, and Vite takes most of a second to load.
import type { UserConfig } from 'vite'

const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url))
/** Our own libraries run nothing when imported; without this the pages would carry every schema of the protocol. */
const OWN_LIBRARY = /\/(protocol|shaders|model|volunteer)\/src\//

const treeshake = { moduleSideEffects: (id: string): boolean => !OWN_LIBRARY.test(id) }

export const webPageConfig = {
  root: here('.'),
  base: '/',
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  worker: { format: 'es', rolldownOptions: { treeshake } },
  build: {
    outDir: here('dist/by-hand'),
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: 'es2022',
    rolldownOptions: {
      input: { index: here('index.html'), dashboard: here('dashboard.html') },
      treeshake,
    },
  },
} satisfies UserConfig

export default webPageConfig
