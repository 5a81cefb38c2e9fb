// First file of a shard's thread: Node 20 reads no TypeScript by itself.
import { compiled } from '../../../bin/compile.mjs'

await import(await compiled(new URL('./shard-worker.ts', import.meta.url)))
