// A whole grid of real processes on this machine: one coordinator on a free port, volunteers, and a watch on the run.
import { mkdtemp, rm } from 'node:fs/promises'
import { setPriority, tmpdir } from 'node:os'
import { join, parse } from 'node:path'
import type { ExecutorWish } from '@starling-grid/client-node/executor-choice'
import { CoordinatorApi, saveBody } from '@starling-grid/client/coordinator-api'
import type { JobSpec, RunView, StepRecord } from '@starling-grid/protocol'
import { ALL_ADDRESSES, type Doors } from '../other-machines.ts'
import { type Child, earlyEnd, startChild, stopChild } from './processes.ts'
import { Watch } from './watch.ts'

/** Where other machines reach its coordinator. */
export interface GridDoors {
  /** address that it listens on; absent: one of this machine alone */
  readonly host?: string
  /** port of its door for other machines (starling start --https); 0: any free one */
  readonly https?: number
  /** files of the certificate and key of that door */
  readonly cert?: string
  readonly key?: string
  /** of a proxy in front */
  readonly publicUrl?: URL
}

export interface LocalGridOptions extends GridDoors {
  /** kept after the grid stopped when given; a temporary folder otherwise */
  readonly dataDir?: string
  /** of the owner; a new one otherwise */
  readonly token?: string
  /** data folder whose imported datasets and models jobs may name; absent: dataDir */
  readonly datasetsDir?: string
  /** 0: any free port */
  readonly port?: number
  /** folder of the built pages, for who opens one; none are served, nor built, otherwise */
  readonly webRoot?: string
  /**
   * niceness of the volunteers: above 0 the coordinator, which shares the machine with them here and nowhere else, goes
   * first
   */
  readonly volunteerNiceness?: number
  /** environment of the coordinator besides this process's, such as STARLING_STATE */
  readonly env?: NodeJS.ProcessEnv
  /** times of the coordinator that a test shortens (coordinator/src/run/timing.ts) */
  readonly timing?: Readonly<Record<string, number>>
  /** volunteers keep what an audit of all steps needs (audit-steps.ts) */
  readonly audited?: boolean
  /** volunteers and the watch reach the coordinator through this proxy, which a scenario breaks at will */
  readonly proxied?: (target: string) => Promise<GridProxy>
}

/** What stands before a coordinator, at an address that stays. */
export interface GridProxy {
  readonly url: string
  /** New connections go to this coordinator. */
  pointTo(target: string): void
  stop(): Promise<void>
}

export interface VolunteerProcessOptions {
  readonly name?: string
  readonly executor?: ExecutorWish
  /** that compute on the processor; absent: one for each core */
  readonly threads?: number
  readonly adapter?: string
  /** several adapters that compute as one, as --gpus takes them */
  readonly gpus?: string
  /** plans for a software adapter as for a GPU */
  readonly as?: 'gpu' | undefined
  /** ends with the run */
  readonly once?: boolean
  /** the only job that it works for */
  readonly job?: string
  /** false: no links over TCP */
  readonly tcp?: boolean
  readonly entry?: string
  readonly env?: NodeJS.ProcessEnv
}

const LOOPBACK = '127.0.0.1'
/** ms for the coordinator to say where it listens: a dataset import may come first */
const START_MS = 60_000

export class Grid {
  readonly #options: LocalGridOptions
  readonly dataDir: string
  readonly token: string
  readonly volunteers: Child[] = []
  readonly proxy: GridProxy | undefined
  coordinator: Child
  /** of the coordinator itself */
  direct: string
  /** of its https door, when it has one */
  readonly https: HttpsDoor | undefined
  watch: Watch

  static async start(options: LocalGridOptions = {}): Promise<Grid> {
    const dataDir = options.dataDir ?? (await mkdtemp(join(tmpdir(), 'starling-')))
    const token = options.token ?? crypto.randomUUID().replaceAll('-', '')
    const { child, url, https } = await startCoordinator({ ...options, dataDir, token, port: options.port ?? 0 })
    return new Grid({ options, dataDir, token, child, url, https, proxy: await options.proxied?.(url) })
  }

  private constructor({ options, dataDir, token, child, url, https, proxy }: GridParts) {
    this.#options = options
    this.dataDir = dataDir
    this.token = token
    this.coordinator = child
    this.direct = url
    this.https = https
    this.proxy = proxy
    this.watch = new Watch(this.url, token)
  }

  /** Where volunteers and people reach it. */
  get url(): string {
    return this.proxy?.url ?? this.direct
  }

  /** Of its coordinator. */
  get doors(): Doors {
    const { host = LOOPBACK, publicUrl } = this.#options
    const https = this.https && { ...this.https, host: host === LOOPBACK ? ALL_ADDRESSES : host }
    return { host, port: Number(new URL(this.direct).port), https, publicUrl }
  }

  /** No other machine reaches it. */
  get isPrivate(): boolean {
    const { host, https, publicUrl } = this.doors
    return https === undefined && publicUrl === undefined && host === LOOPBACK
  }

  /** For its owner. */
  get api(): CoordinatorApi {
    return new CoordinatorApi({ url: this.direct, token: this.token })
  }

  /** Folder of what its volunteers keep for audits. */
  get witness(): string {
    return join(this.dataDir, 'witness')
  }

  /** @throws GridError what the coordinator refused, with its code */
  async submit(job: JobSpec): Promise<string> {
    return (await this.api.submit(job)).job.id
  }

  /** The run ends with the epoch that it is in. */
  async endWithEpoch(job: string): Promise<void> {
    await this.api.stop(job)
  }

  /** Ids of the jobs that its data folder holds, the oldest first. */
  async jobs(): Promise<string[]> {
    return (await this.api.jobs()).jobs.map(({ job }) => job.id)
  }

  addVolunteer(options: VolunteerProcessOptions = {}): Child {
    const { name = `volunteer-${this.volunteers.length + 1}`, entry, env } = options
    const args = ['--name', name, ...flagsOf(options)]
    const kept = this.#options.audited === true ? { STARLING_WITNESS: this.witness } : {}
    const child = startChild({
      name,
      args: entry === undefined ? ['volunteer', this.url, ...args] : [this.url, ...args],
      ...(entry === undefined ? {} : { entry }),
      env: { ...kept, ...env },
    })
    // Threads take it over from the one that starts them; so far there is only one.
    if (this.#options.volunteerNiceness !== undefined && child.process.pid !== undefined)
      setPriority(child.process.pid, this.#options.volunteerNiceness)
    this.volunteers.push(child)
    return child
  }

  /** SIGKILL, as a power cut would. */
  async killCoordinator(): Promise<void> {
    this.coordinator.kill('SIGKILL')
    await this.coordinator.ended
  }

  /** The same port and the same folder: the volunteers find it again by themselves. */
  async restartCoordinator(): Promise<void> {
    const { child } = await startCoordinator({
      ...this.#options,
      dataDir: this.dataDir,
      token: this.token,
      port: Number(new URL(this.direct).port),
      ...(this.https === undefined ? {} : { https: this.https.port }),
    })
    this.coordinator = child
  }

  /**
   * Another coordinator on the same folder, as a rolling restart starts it: the one before is deposed, and ends by
   * itself.
   */
  async replaceCoordinator(): Promise<Child> {
    if (this.proxy === undefined) throw new Error('internal: a coordinator on another port is reached through a proxy')
    const before = this.coordinator
    const { child, url } = await startCoordinator({
      ...this.#options,
      dataDir: this.dataDir,
      token: this.token,
      port: 0,
      takeOver: true,
    })
    this.coordinator = child
    this.direct = url
    this.proxy.pointTo(url)
    return before
  }

  /** The committed chain of a job. */
  records(job: string): Promise<StepRecord[]> {
    return this.api.records(job)
  }

  /** A job's run as the dashboard sees it. */
  run(job: string): Promise<RunView> {
    return this.api.run(job)
  }

  async exportModel(job: string, file: string): Promise<void> {
    await saveBody(await this.api.export(job), file)
  }

  async stop(): Promise<void> {
    this.watch.stop()
    await Promise.all(this.volunteers.map((child) => stopChild(child)))
    await stopChild(this.coordinator)
    await this.proxy?.stop()
    if (this.#options.dataDir === undefined) await rm(this.dataDir, { recursive: true, force: true })
  }
}

export interface HttpsDoor {
  readonly port: number
  /** SHA-256 of its certificate */
  readonly fingerprint: string
  /** no authority signed it */
  readonly isOwn: boolean
}

interface GridParts {
  readonly options: LocalGridOptions
  readonly dataDir: string
  readonly token: string
  readonly child: Child
  readonly url: string
  readonly https: HttpsDoor | undefined
  readonly proxy: GridProxy | undefined
}

/** The line that `starling start --json` prints. */
interface Listening {
  readonly url: string
  readonly httpsPort?: number
  readonly fingerprint?: string
  readonly selfSigned?: boolean
}

async function startCoordinator(
  options: LocalGridOptions & {
    readonly dataDir: string
    readonly token: string
    readonly port: number
    readonly takeOver?: boolean
  },
): Promise<Pick<GridParts, 'child' | 'url' | 'https'>> {
  const { dataDir, token, port, webRoot = dataDir, timing } = options
  let told: (listening: Listening) => void = () => undefined
  const listening = new Promise<Listening>((resolve) => {
    told = resolve
  })
  const args = ['start', '--json', '--port', String(port), '--data-dir', dataDir, '--web-root', webRoot]
  args.push('--data-root', parse(process.cwd()).root) // who starts a grid owns its jobs
  if (options.datasetsDir !== undefined) args.push('--datasets-dir', options.datasetsDir)
  if (options.takeOver === true) args.push('--take-over')
  args.push(...doorArguments(options))
  if (timing !== undefined) args.push('--timing', JSON.stringify(timing))
  const child = startChild({
    name: 'the coordinator',
    args,
    env: { STARLING_TOKEN: token, ...options.env },
    onLine: (line, stream) =>
      stream === 'stdout' && line.startsWith('{') ? told(JSON.parse(line) as Listening) : undefined,
  })
  const timer = new Promise<never>((_, reject) =>
    setTimeout(
      () => reject(new Error(`the coordinator did not say where it listens: ${child.lines.join(' | ')}`)),
      START_MS,
    ).unref(),
  )
  const {
    url,
    httpsPort,
    fingerprint,
    selfSigned = true,
  } = await Promise.race([listening, child.ended.then((ended) => Promise.reject(earlyEnd(child, ended))), timer])
  if (httpsPort === undefined || fingerprint === undefined) return { child, url, https: undefined }
  return { child, url, https: { port: httpsPort, fingerprint, isOwn: selfSigned } }
}

function doorArguments({ host, https, cert, key, publicUrl }: GridDoors): string[] {
  const values = { host, https, cert, key, 'public-url': publicUrl }
  return Object.entries(values).flatMap(([name, value]) => (value === undefined ? [] : [`--${name}`, String(value)]))
}

function flagsOf({ executor, threads, adapter, gpus, as, once, job, tcp = true }: VolunteerProcessOptions): string[] {
  return [
    ...(executor === undefined ? [] : ['--executor', executor]),
    ...(threads === undefined ? [] : ['--threads', String(threads)]),
    ...(adapter === undefined ? [] : ['--adapter', adapter]),
    ...(gpus === undefined ? [] : ['--gpus', gpus]),
    ...(as === undefined ? [] : ['--as', as]),
    ...(once === true ? ['--once'] : []),
    ...(job === undefined ? [] : ['--job', job]),
    ...(tcp ? [] : ['--no-tcp']),
  ]
}
