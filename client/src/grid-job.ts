// A job of a coordinator, as a program has it in hand.
import { type ModelFile, readModelFile } from '@starling-grid/model'
import type { RunView } from '@starling-grid/protocol'
import { bytesOf, type CoordinatorApi } from './coordinator-api.ts'
import { type JobUpdate, watchRun, type WatchOptions } from './watch-run.ts'

export class GridJob {
  readonly id: string
  readonly #api: CoordinatorApi

  constructor(api: CoordinatorApi, id: string) {
    this.#api = api
    this.id = id
  }

  /** How far it is now. */
  run(): Promise<RunView> {
    return this.#api.run(this.id)
  }

  /**
   * Its steps and events up to its end, over restarts of the coordinator; the last update has the run as it ended.
   * @throws GridError what the coordinator refuses for good
   * @example for await (const update of job.watch()) if (update.type === 'step') console.log(update.step.loss)
   */
  watch(options: WatchOptions = {}): AsyncGenerator<JobUpdate> {
    return watchRun(this.#api, this.id, options)
  }

  /**
   * Its model, for `openPredictor`: of the newest checkpoint, or of the kept one of step `version`.
   * @throws GridError 'message-unexpected' when there is none yet, or that one is not kept
   * @example const predictor = await openPredictor(await job.model())
   */
  async model({ version }: { readonly version?: number } = {}): Promise<ModelFile> {
    return readModelFile(await bytesOf(await this.#api.export(this.id, version)), `the model of ${this.id}`)
  }

  /** It ends with the epoch that it is in; how many it has then. */
  stop(): Promise<number> {
    return this.#api.stop(this.id)
  }
}
