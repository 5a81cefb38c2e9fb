// A program that gets no answer to its submission sends it again. The reference in the job says that it is the same
// one, so that it makes one job, however often it comes.
import { isDeepStrictEqual } from 'node:util'
import { type JobSpec, MistakesError } from '@starling-grid/protocol'
import type { RunHost } from '../host/run-host.ts'
import type { Runs } from '../jobs/runs.ts'

export class References {
  readonly #runs: Pick<Runs, 'list'>
  /** the last submission of a reference: the next one waits for it */
  readonly #underWay = new Map<string, Promise<unknown>>()

  constructor(runs: Pick<Runs, 'list'>) {
    this.#runs = runs
  }

  /**
   * The job of this reference, or the one that `make` begins.
   * @throws MistakesError when the reference is that of another job; what `make` throws
   */
  async jobOf(spec: JobSpec, ownedBy: string | undefined, make: () => Promise<RunHost>): Promise<RunHost> {
    const { reference } = spec
    if (reference === undefined) return make()
    const key = `${ownedBy ?? ''} ${reference}`
    const before = this.#underWay.get(key)?.catch(() => undefined)
    const made = Promise.resolve(before).then(() => this.#known(spec, ownedBy) ?? make())
    this.#underWay.set(key, made)
    try {
      return await made
    } finally {
      if (this.#underWay.get(key) === made) this.#underWay.delete(key)
    }
  }

  #known(spec: JobSpec, ownedBy: string | undefined): RunHost | undefined {
    const { reference = '' } = spec
    const run = this.#runs.list().find(({ job }) => job.submitted.reference === reference && job.ownedBy === ownedBy)
    if (run === undefined || isDeepStrictEqual(run.job.submitted, spec)) return run
    const mistake = {
      path: ['reference'],
      expected: 'a reference that no other job has',
      found: `that of ${run.job.id}, whose description is another`,
      hint: 'choose another, or delete that job',
    }
    throw new MistakesError('job-invalid', [mistake])
  }
}
