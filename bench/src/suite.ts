// What a suite is given and gives. A suite is one file; main.ts has the table of them.
import type { OwnExecutor } from './libraries/starling.ts'
import { findPeers } from './peers.ts'
import { openBrowser } from './places/browser.ts'
import { openNode } from './places/node.ts'
import type { BenchPlace } from './places/place.ts'
import type { BenchRow } from './row.ts'

export interface SuiteOptions {
  /** part of the wanted adapter's name */
  readonly adapter: string | undefined
  /** what computes Starling's own rows; the other one is measured beside it */
  readonly executor: OwnExecutor
  readonly in: 'node' | 'browser'
  /** part of the names of the rows that are wanted; absent: all */
  readonly only?: string | undefined
  /** part of the names of the libraries beside Starling that are wanted; absent: all that can be had */
  readonly against?: string | undefined
  /** a row that is there to be wanted */
  readonly onRow?: (row: string) => void
  /** sizes that show that a row works, and are too small to measure */
  readonly short?: boolean | undefined
  /** of the coordinator suite: events of a journal that is opened again, and coordinators that are killed */
  readonly events?: number | undefined
  readonly kills?: number | undefined
  /** interleaved rounds of each row */
  readonly rounds: number
  /** progress, for people */
  readonly log: (line: string) => void
}

/** Of rows that are measured in each store. */
export interface StoreSuiteOptions extends SuiteOptions {
  /** an empty PostgreSQL database; undefined: the rows of SQLite alone are measured */
  readonly postgres: string | undefined
}

/** For suites of rows that take long. Written as people write names: "LeNet-5" is lenet5. */
export function isWanted({ only, onRow }: Pick<SuiteOptions, 'only' | 'onRow'>, row: string): boolean {
  onRow?.(row)
  return only === undefined || plainName(row).includes(plainName(only))
}

/** Of libraries: Starling's own are always measured. */
export function isMeasured({ against }: Pick<SuiteOptions, 'against'>, library: string): boolean {
  return against === undefined || library === 'starling' || library.includes(against)
}

function plainName(name: string): string {
  return name.toLowerCase().replaceAll(/[^a-z0-9×→√]+/g, '')
}

export type Suite = (options: SuiteOptions) => Promise<BenchRow[]>

/** Opens the place that the options name, with every peer that can be had, and closes it afterwards. */
export async function inPlace<T>(options: SuiteOptions, measure: (place: BenchPlace) => Promise<T>): Promise<T> {
  const peers = findPeers(options.log)
  const place = await (options.in === 'browser' ? openBrowser(options.executor, peers) : openNode(options, peers))
  try {
    options.log(
      `${place.adapter} in ${place.name}: ` +
        `${place.libraries.map(({ name, version }) => `${name} ${version}`).join(', ')}`,
    )
    return await measure(place)
  } finally {
    await place.close()
  }
}
