// Looks for a seed whose grid breaks an invariant, in a process of its own: the tree around it may hold a mutant.
// `node bin/typescript.mjs e2e/src/world/hunt.ts '{"seeds": [4, 1, 2]}'` prints one line of JSON.
import type { GridOptions } from './scenario.ts'
import { simulateGrid } from './world.ts'

export interface Hunt {
  /** tried one after another, until one shows a violation */
  readonly seeds: readonly number[]
  readonly options?: GridOptions
}

export interface Found {
  readonly seed: number
  readonly invariant: string
  readonly text: string
}

let seed = 0

function told(found: Found | null): never {
  console.log(JSON.stringify(found))
  process.exit(0)
}

/** A defect that no promise carries: production's processes would end. */
function died(error: unknown): never {
  told({ seed, invariant: 'defect', text: String(error instanceof Error ? error.stack : error).slice(0, 400) })
}

process.on('uncaughtException', died)
process.on('unhandledRejection', died)

const { seeds, options } = JSON.parse(process.argv[2] ?? '') as Hunt
for (seed of seeds) {
  const { violation } = await simulateGrid(seed, options).catch(died)
  if (violation !== undefined) told({ seed, ...violation })
}
told(null)
