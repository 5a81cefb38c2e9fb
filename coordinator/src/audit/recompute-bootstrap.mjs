// First file of a recomputation's thread. Threads begin without the loader of their parent, and Node 20 reads no
// TypeScript by itself.
import { register } from 'tsx/esm/api'

register()
await import('./recompute-worker.ts')
