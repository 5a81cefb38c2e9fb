// First file of an encoding's thread: Node 20 reads no TypeScript by itself.
import { compiled } from '../../../bin/compile.mjs'

await import(await compiled(new URL('./encoding-worker.ts', import.meta.url)))
