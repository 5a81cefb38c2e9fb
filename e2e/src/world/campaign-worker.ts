// A process of a campaign: lives the seeds that it is given, one after another, and tells what each came to.
import type { GridOptions } from './scenario.ts'
import { type GridOutcome, simulateGrid } from './world.ts'

/** Seeds from `first` on. */
export interface Errand {
  readonly first: number
  readonly seeds: number
  readonly options: GridOptions
}

export type Report =
  | { readonly type: 'seed'; readonly outcome: Omit<GridOutcome, 'story' | 'records'> }
  | { readonly type: 'idle' }

function tell(report: Report): void {
  process.send?.(report)
}

process.on('message', (errand: Errand) => {
  void live(errand)
})

async function live({ first, seeds, options }: Errand): Promise<void> {
  for (let seed = first; seed < first + seeds; seed++) {
    const { story: _, records: __, ...outcome } = await simulateGrid(seed, options)
    tell({ type: 'seed', outcome })
  }
  tell({ type: 'idle' })
}

tell({ type: 'idle' })
