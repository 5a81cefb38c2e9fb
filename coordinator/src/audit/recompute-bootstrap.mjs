// First file of a recomputation's thread: Node 20 reads no TypeScript by itself.
import { compiled } from '../../../bin/compile.mjs'

await import(await compiled(new URL('./recompute-worker.ts', import.meta.url)))
