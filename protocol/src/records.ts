// The committed chain over HTTP, page by page: GET /api/v1/jobs/ID/records?from=V&limit=N.
import * as Type from 'typebox'
import { type StepRecord, ChainRecordSchema } from './chain.ts'
import { GridError } from './errors.ts'
import { pathTo, ROUTES } from './routes.ts'
import { Count, parse, strict } from './schema.ts'

/** Records in one answer: a few hundred kB of ordinary steps. */
export const MAX_RECORDS = 500
/** Times that a chain which rewinds while it is read is read anew. */
const MAX_TRIES = 10

export interface RecordsPage {
  /** from version `from` on, ascending */
  readonly records: readonly StepRecord[]
  /** where the next page begins; null: the chain ends here */
  readonly next: number | null
  /** how often the run went back to a checkpoint: pages with different numbers do not belong together */
  readonly rewinds: number
}

export const RecordsPageSchema = Type.Unsafe<RecordsPage>(
  strict({
    records: Type.Array(ChainRecordSchema, { maxItems: MAX_RECORDS }),
    next: Type.Union([Count, Type.Null()]),
    rewinds: Count,
  }),
)

/**
 * The whole committed chain of a job. `get`: JSON at a path of the coordinator.
 * @throws GridError 'message-malformed'; 'base-stale' when the run goes back again and again meanwhile
 */
export async function allRecords(job: string, get: (path: string) => Promise<unknown>): Promise<StepRecord[]> {
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    const records = await readOnce(job, get)
    if (records !== undefined) return records
  }
  throw new GridError('base-stale', 'expected a chain that stays, got one that rewinds all the time; ask again later')
}

/** Undefined when the run went back to a checkpoint in between. */
async function readOnce(job: string, get: (path: string) => Promise<unknown>): Promise<StepRecord[] | undefined> {
  const records: StepRecord[] = []
  let rewinds: number | undefined
  for (let from: number | null = 1; from !== null;) {
    const page: RecordsPage = parse(
      RecordsPageSchema,
      await get(`${pathTo(ROUTES.records, { id: job })}?from=${from}&limit=${MAX_RECORDS}`),
      'a page of records',
    )
    rewinds ??= page.rewinds
    const first = from
    const isNext = page.records.every(({ v }, i) => v === first + i)
    if (page.rewinds !== rewinds || !isNext) return undefined
    records.push(...page.records)
    from = page.next
  }
  return records
}
