// A job as one store has it, to be taken into another: migration, backup and restore are copies.
import type { StepRecord } from '@starling-grid/protocol'
import type { JournalRow, StateStore, StoredJob } from './state-store.ts'

export interface JobCopy {
  readonly job: StoredJob
  /** of its last owner: the next one's is higher (I7) */
  readonly fence: number
  readonly rows: readonly JournalRow[]
  /** the committed chain, from version 1 on */
  readonly records: readonly StepRecord[]
}

/** A store whose jobs can go to another one. */
export interface PortableState extends StateStore {
  /** Everything of one job as it was at one moment; also while a coordinator writes. */
  copyOf(job: StoredJob): Promise<JobCopy>
  /** Durable as a whole when it resolves. @throws GridError 'disk-failed'; 'duplicate' when there is such a job */
  adopt(copy: JobCopy): Promise<void>
}
