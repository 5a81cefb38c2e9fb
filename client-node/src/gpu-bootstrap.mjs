// First file of a thread that computes on one GPU of several: Node 20 reads no TypeScript by itself.
import { compiled } from '../../bin/compile.mjs'

await import(await compiled(new URL('./gpu-worker.ts', import.meta.url)))
