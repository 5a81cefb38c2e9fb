// `chaos everything`: one real grid, and jobs that come and go. For some minutes all happens that the other scenarios
// break, one by one, in random order. Then nothing more breaks, and every job must end with every block in its history
// once.
import { readdir, stat, truncate } from 'node:fs/promises'
import { join } from 'node:path'
import { type Child, demoJob, duration, Grid } from '@starling-grid/cli'
import { auditSteps, auditText, joinedAudits, type StepsAudited } from '@starling-grid/cli/audit-steps'
import type { RunView } from '@starling-grid/protocol'
import { type ChainAudit, auditChain } from '../audit.ts'
import { FaultProxy } from '../fault-proxy.ts'
import { type Percentiles, percentiles } from './scenario.ts'

export interface EverythingOptions {
  readonly minutes: number
  readonly volunteers: number
  readonly executor: 'webgpu' | 'reference'
  readonly random: () => number
  readonly seed: number
  /** at the end the gradient of every committed step is computed once more */
  readonly audit: boolean
  /** a line that stays, and one that changes */
  readonly say: (text: string) => void
  readonly show: (text: string) => void
}

export interface EverythingResult extends ChainAudit, Partial<StepsAudited> {
  /** how often each kind of fault struck */
  readonly faults: Readonly<Record<string, number>>
  readonly jobs: number
  readonly jobsEnded: number
  readonly replicasIdentical: boolean
  /** from a fault to the next committed step of any job, in seconds */
  readonly recoverySeconds: Percentiles
  /** volunteer processes that ended without being killed or told to */
  readonly volunteersEnded: readonly string[]
  /** coordinators that were replaced, and ended by themselves */
  readonly coordinatorsDeposed: number
  /** what the network did to requests and sockets */
  readonly network: FaultProxy['hits']
  readonly seconds: number
}

/** ms between two faults, at least; the next one waits until the run found its way back from the last */
const CALM_MS = 3000
const CALM_SPREAD_MS = 6000
/** ms for the next step after a fault, and for all jobs to end after the last one */
const RECOVERY_LIMIT_MS = 120_000
const END_LIMIT_MS = 10 * 60_000
/** ms for a deposed coordinator to end */
const DEPOSED_LIMIT_MS = 30_000
/**
 * Shorter than production's 60 s, so that a grid that lost all its volunteers goes back to a checkpoint within the
 * minutes that it runs.
 */
const TIMING = { lostMs: 8000, checkpointMs: 4000 }
/** A home's upload: 2 Mbit/s. */
const SLOW_BYTES_PER_SECOND = 250_000
const SLOW_MS = 20_000
const LOST_ANSWERS = 6
/** The grid always has a job of this many epochs under way; a job that interrupts it has one. */
const LONG_JOB_EPOCHS = 6
const MODES = ['ring', 'auto', 'async', 'local'] as const

export async function everything(options: EverythingOptions): Promise<EverythingResult> {
  let proxy: FaultProxy | undefined
  const proxied = async (target: string): Promise<FaultProxy> => {
    proxy = await FaultProxy.start(target, options.random)
    return proxy
  }
  const grid = await Grid.start({
    volunteerNiceness: 5,
    timing: TIMING,
    audited: options.audit,
    proxied,
  })
  if (proxy === undefined) throw new Error('internal: chaos needs its proxy')
  const ordeal = new Ordeal(grid, proxy, options)
  try {
    return await ordeal.run()
  } finally {
    ordeal.over()
    await grid.stop()
  }
}

interface OrdealJob {
  readonly id: string
  readonly epochs: number
}

class Ordeal {
  readonly #grid: Grid
  readonly #proxy: FaultProxy
  readonly #options: EverythingOptions
  readonly #jobs: OrdealJob[] = []
  readonly #struck = new Map<string, number>()
  readonly #recoveries: number[] = []
  /** children that were meant to end */
  readonly #condemned = new Set<Child>()
  readonly #endedBySelf: string[] = []
  #deposed = 0
  readonly #began = Date.now()

  constructor(grid: Grid, proxy: FaultProxy, options: EverythingOptions) {
    this.#grid = grid
    this.#proxy = proxy
    this.#options = options
  }

  readonly #faults: Readonly<Record<string, () => Promise<void>>> = {
    'a volunteer is killed': () => this.#killVolunteer(),
    'the coordinator is killed': () => this.#killCoordinator(),
    'another coordinator takes over': () => this.#takeOver(),
    'answers are lost': async () => this.#proxy.loseAnswers(LOST_ANSWERS),
    'uploads are slow': async () => this.#proxy.slowUploads(SLOW_BYTES_PER_SECOND, SLOW_MS),
    'another job comes': () => this.#submit(1),
    'the newest checkpoint is damaged and all volunteers die': () => this.#damageAndLoseAll(),
  }

  async run(): Promise<EverythingResult> {
    const { say, minutes, volunteers } = this.#options
    await this.#submit(LONG_JOB_EPOCHS)
    for (let i = 0; i < volunteers; i++) this.#addVolunteer()
    await this.#nextStep(this.#began)
    const end = Date.now() + minutes * 60_000
    for (let deck: string[] = []; Date.now() < end;) {
      if (deck.length === 0) deck = this.#shuffled(Object.keys(this.#faults))
      await this.#strike(deck.pop() ?? '')
      this.#progress(`${duration((end - Date.now()) / 1000)} of faults left`)
      if ((await this.#unfinished()).length === 0) await this.#submit(LONG_JOB_EPOCHS)
      await new Promise((resolve) => setTimeout(resolve, CALM_MS + (this.#options.random() % CALM_SPREAD_MS)))
    }
    say('no more faults: every job has to end')
    await this.#allEnd()
    return this.#result()
  }

  /** Whatever ends from here on was told to. */
  over(): void {
    for (const child of this.#grid.volunteers) this.#condemned.add(child)
  }

  async #strike(kind: string): Promise<void> {
    this.#options.say(`${kind} (${this.#grid.watch.describe()})`)
    const at = Date.now()
    this.#struck.set(kind, (this.#struck.get(kind) ?? 0) + 1)
    await this.#faults[kind]?.()
    const recovered = await this.#nextStep(at)
    this.#recoveries.push((recovered - at) / 1000)
  }

  /** The first step that any job committed after this instant; the time of its commit, ms. */
  async #nextStep(since: number): Promise<number> {
    return this.#grid.watch.waitFor(
      'the next committed step',
      ({ steps, run }) => {
        const next = steps.find(({ at }) => at > since)
        if (next !== undefined) return next.at
        return run?.phase === 'finished' ? Date.now() : undefined
      },
      RECOVERY_LIMIT_MS,
    )
  }

  #addVolunteer(): void {
    const child = this.#grid.addVolunteer({ executor: this.#options.executor })
    void child.ended.then((how) => {
      if (this.#condemned.has(child)) return
      this.#endedBySelf.push(
        `${child.name} (${how}): ${child.lines.filter((line) => line.trim() !== '').at(-1) ?? 'it said nothing'}`,
      )
      this.#options.say(`! ${this.#endedBySelf.at(-1)}`)
    })
  }

  #living(): Child[] {
    return this.#grid.volunteers.filter((child) => child.alive())
  }

  async #kill(child: Child): Promise<void> {
    this.#condemned.add(child)
    child.kill('SIGKILL')
    await child.ended
  }

  async #killVolunteer(): Promise<void> {
    const living = this.#living()
    const victim = living[this.#options.random() % living.length]
    if (victim !== undefined) await this.#kill(victim)
    this.#addVolunteer()
  }

  async #killCoordinator(): Promise<void> {
    await this.#grid.killCoordinator()
    await this.#grid.restartCoordinator()
  }

  async #takeOver(): Promise<void> {
    const before = await this.#grid.replaceCoordinator()
    const timer = new Promise<'alive'>((resolve) => setTimeout(() => resolve('alive'), DEPOSED_LIMIT_MS).unref())
    if ((await Promise.race([before.ended, timer])) === 'alive')
      throw new Error(
        `the coordinator that was replaced still runs after ${DEPOSED_LIMIT_MS / 1000} s: ` +
          `${before.lines.slice(-3).join(' | ')}`,
      )
    this.#deposed++
  }

  /** A6, R6: the newest copy is no good and no volunteer is left; an older checkpoint has to serve. */
  async #damageAndLoseAll(): Promise<void> {
    await this.#damageNewest()
    const doomed = this.#living()
    await Promise.all(doomed.map((child) => this.#kill(child)))
    for (const _ of doomed) this.#addVolunteer()
  }

  /** Cuts the last byte off the newest version, unless it is the only one. */
  async #damageNewest(): Promise<void> {
    const folder = join(this.#grid.dataDir, 'blobs')
    const names = await readdir(folder, { recursive: true })
    const files = await Promise.all(
      names.map(async (name) => ({
        file: join(folder, name),
        stats: await stat(join(folder, name)).catch(() => undefined),
      })),
    )
    const bytes = this.#grid.watch.run?.checkpoint?.bytes
    const versions = files
      .filter(({ stats }) => stats?.isFile() === true && stats.size === bytes)
      .sort((a, b) => (b.stats?.mtimeMs ?? 0) - (a.stats?.mtimeMs ?? 0))
    const [newest, older] = versions
    if (newest === undefined || older === undefined || bytes === undefined)
      return this.#options.say('  there is no second checkpoint yet: none is damaged')
    await truncate(newest.file, bytes - 1)
  }

  async #submit(epochs: number): Promise<void> {
    const number = this.#jobs.length
    const mode = MODES[number % MODES.length] ?? 'ring'
    const id = await this.#grid.submit({
      ...demoJob({ stop: { epochs }, seed: this.#options.seed + number, mode }),
      name: `Digits ${number + 1} (${mode})`,
    })
    this.#jobs.push({ id, epochs })
  }

  async #unfinished(): Promise<OrdealJob[]> {
    const views = await Promise.all(this.#jobs.map(async (job) => ({ job, view: await this.#view(job) })))
    return views.filter(({ view }) => view.phase !== 'finished').map(({ job }) => job)
  }

  #view({ id }: OrdealJob): Promise<RunView> {
    return this.#grid.run(id)
  }

  async #allEnd(): Promise<void> {
    const limit = Date.now() + END_LIMIT_MS
    for (;;) {
      const left = await this.#unfinished()
      if (left.length === 0) return
      if (Date.now() > limit)
        throw new Error(
          `${left.length} of ${this.#jobs.length} jobs did not end within ${END_LIMIT_MS / 60_000} minutes after ` +
            `the last fault; the run is ${this.#grid.watch.describe()}`,
        )
      this.#progress(`${left.length} of ${this.#jobs.length} jobs have to end`)
      await new Promise((resolve) => setTimeout(resolve, 1000))
    }
  }

  #progress(text: string): void {
    const { run } = this.#grid.watch
    this.#options.show(`${text}; ${run?.job.name ?? 'no job'}: step ${run?.version.v ?? 0}, ${run?.reason ?? ''}`)
  }

  async #result(): Promise<EverythingResult> {
    const ended = await Promise.all(this.#jobs.map((job) => this.#ended(job)))
    const sum = (of: (one: ChainAudit) => number): number => ended.reduce((total, { audit }) => total + of(audit), 0)
    return {
      faults: Object.fromEntries(this.#struck),
      jobs: this.#jobs.length,
      jobsEnded: ended.filter(({ view }) => view.phase === 'finished').length,
      blocksExpected: sum((one) => one.blocksExpected),
      blocksCommitted: sum((one) => one.blocksCommitted),
      lost: sum((one) => one.lost),
      duplicated: sum((one) => one.duplicated),
      replicasIdentical: ended.every(
        ({ view: { checkpoint } }) => checkpoint !== null && checkpoint.agreeing === checkpoint.members,
      ),
      recoverySeconds: percentiles(this.#recoveries),
      volunteersEnded: this.#endedBySelf,
      coordinatorsDeposed: this.#deposed,
      network: this.#proxy.hits,
      seconds: Math.round((Date.now() - this.#began) / 1000),
      ...(this.#options.audit ? await this.#audited() : {}),
    }
  }

  async #audited(): Promise<StepsAudited> {
    const { executor, say } = this.#options
    const found: StepsAudited[] = []
    for (const [index, { id }] of this.#jobs.entries()) {
      const show = (done: number, of: number): void =>
        this.#options.show(`audit of job ${index + 1} of ${this.#jobs.length}: step ${done} of ${of} computed again`)
      found.push(await auditSteps(this.#grid, id, { executor, say, show }))
    }
    const all = joinedAudits(found)
    say(`audit: ${auditText(all)}`)
    return all
  }

  async #ended(job: OrdealJob): Promise<{ readonly view: RunView; readonly audit: ChainAudit }> {
    const view = await this.#view(job)
    return { view, audit: auditChain(await this.#grid.records(job.id), view.job.blocksPerEpoch * job.epochs) }
  }

  #shuffled<T>(items: readonly T[]): T[] {
    const left = [...items]
    return items.map(() => left.splice(this.#options.random() % left.length, 1)).flat()
  }
}
