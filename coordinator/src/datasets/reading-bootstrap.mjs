// First file of the thread that reads for an import: Node 20 reads no TypeScript by itself.
import { compiled } from '../../../bin/compile.mjs'

await import(await compiled(new URL('./reading-worker.ts', import.meta.url)))
