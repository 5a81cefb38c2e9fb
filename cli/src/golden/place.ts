// Where golden cases run: this process, or a page in a browser.
import type { AdapterDescription, ExecutorKind } from '@starling-grid/protocol'
import type { GoldenResult } from '@starling-grid/volunteer/golden'

export interface GoldenPlace {
  readonly adapter: AdapterDescription
  /** `file` holds the bytes of one case. */
  run(file: Uint8Array): Promise<GoldenResult>
  close(): Promise<void>
}

export interface GoldenPlaceOptions {
  readonly executor: ExecutorKind
  /** part of the wanted adapter's name */
  readonly adapter?: string
  /** plan for a software adapter as for a GPU */
  readonly as?: 'gpu'
  /** absent: f32 */
  readonly precision?: 'f32' | 'f16'
}
