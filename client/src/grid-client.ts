// A coordinator, as a program uses it: submit a job, watch it, take its model.
import type { JobSpec, RunView } from '@starling-grid/protocol'
import { type ConnectionOptions, openApi } from './connection.ts'
import type { CoordinatorApi } from './coordinator-api.ts'
import { GridJob } from './grid-job.ts'
import { submitFile } from './submit-file.ts'

/**
 * Asks nothing of the coordinator yet.
 * @throws GridError 'usage' for an address that is none, or a token that others may read
 * @example const grid = await connect({ url: 'http://localhost:8790' })
 */
export async function connect(options: ConnectionOptions = {}): Promise<GridClient> {
  return new GridClient(await openApi(options))
}

export class GridClient {
  /** every route of the coordinator, as the commands use them */
  readonly api: CoordinatorApi

  constructor(api: CoordinatorApi) {
    this.api = api
  }

  /**
   * Begins a job: a specification, or the file of one. The coordinator imports its dataset first.
   * @throws GridError 'job-invalid', 'model-invalid', 'dataset-unreadable', 'token-required', 'coordinator-lost'
   * @example const job = await grid.submit('examples/text-bpe.yaml')
   */
  async submit(job: JobSpec | string): Promise<GridJob> {
    const run = typeof job === 'string' ? await submitFile(this.api, job) : await this.api.submit(job)
    return this.job(run.job.id)
  }

  /** The job of this id, which is not asked for yet. */
  job(id: string): GridJob {
    return new GridJob(this.api, id)
  }

  /** All that this token may read, the oldest first. */
  async jobs(): Promise<readonly RunView[]> {
    return (await this.api.jobs()).jobs
  }
}
