// First file of a computing thread: Node 20 reads no TypeScript by itself.
import { compiled } from '../../bin/compile.mjs'

await import(await compiled(new URL('./wasm-worker.ts', import.meta.url)))
