// Modules and what they import as files that a page, or Node, can load without a build of its own. Vite does the work,
// as for the pages of volunteers, so that kernels are files of their own here too.
import { fileURLToPath } from 'node:url'

const ROOT = fileURLToPath(new URL('../../..', import.meta.url))

/** Builds each module into `<folder>/<name>.js`; they keep their exports and share what they have in common. */
export async function bundle(modules: Readonly<Record<string, URL>>, folder: string): Promise<void> {
  // Vite sets NODE_ENV for the whole process, which belongs to the caller here.
  const before = process.env['NODE_ENV']
  const { build } = await import('vite') // late: only this needs it
  try {
    await build({
      configFile: false,
      logLevel: 'error',
      root: ROOT,
      base: '/',
      build: {
        outDir: folder,
        emptyOutDir: true,
        assetsInlineLimit: 0,
        target: 'es2022',
        minify: false,
        modulePreload: false,
        rolldownOptions: {
          input: Object.fromEntries(Object.entries(modules).map(([name, url]) => [name, fileURLToPath(url)])),
          preserveEntrySignatures: 'strict',
          output: { entryFileNames: '[name].js' },
          // Peers' packages are as they are: what they warn about is not ours to mend.
          onLog: () => undefined,
        },
      },
    })
  } finally {
    if (before === undefined) delete process.env['NODE_ENV']
    else process.env['NODE_ENV'] = before
  }
}
