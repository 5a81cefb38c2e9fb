// `starling start`: options, the pages, start, next steps, stop on signal.
import { readJobFile } from '@starling-grid/client/job-file'
import {
  type Coordinator,
  createCoordinator,
  type Log,
  type OwnerToken,
  ownerToken,
  tokenIn,
} from '@starling-grid/coordinator'
import { DEFAULT_HOST, describeError, isGridError, type JobSpec, ROUTES } from '@starling-grid/protocol'
import { type Certificate, certificateOf } from '../certificate.ts'
import { ALL_ADDRESSES, type Doors, otherMachines } from '../other-machines.ts'
import { processLog } from '../process-log.ts'
import { type StartOptions, startSettings, timingOf } from '../start-options.ts'

/** what other users of this machine may do with files that are made here: nothing */
const OWN_FILES = 0o077
const SECOND_MS = 1000
const FAILURE = 1
const WRONG_USE = 2
/** exit code of a process that was told twice to stop */
const INTERRUPTED = 130
/** exit code of a process whose data folder another coordinator took over: a supervisor must not start it again */
const DEPOSED = 3

export async function start(argv: readonly string[]): Promise<number> {
  const { options, printed, warnings: doubts } = await startSettings(argv)
  if (printed !== undefined) {
    process.stdout.write(printed)
    return 0
  }
  const log = processLog(options)
  if (options.logFormat === 'text') return runCoordinator(options, { log, doubts, say })
  // A program reads the log: not a line of it may be of another form.
  return runCoordinator(options, { log, doubts, say: () => undefined }).catch((error: unknown) => {
    log({ level: 'error', message: describeError(error) })
    return isGridError(error) && error.code === 'usage' ? WRONG_USE : FAILURE
  })
}

interface Outputs {
  readonly log: Log
  /** about the settings */
  readonly doubts: readonly string[]
  /** to people at a terminal */
  readonly say: (text: string) => void
}

async function runCoordinator(options: StartOptions, { log, doubts, say }: Outputs): Promise<number> {
  const webRoot = options.webRoot ?? (await builtPages(say))
  process.umask(OWN_FILES) // data, models and the journal are of this user alone
  const job = options.job === undefined ? undefined : (await readJobFile(options.job)).job
  const owner = await ownerToken(options.dataDir, options)
  const { https: httpsPort, ...rest } = options
  const door = httpsPort === undefined ? undefined : await httpsDoor(options, httpsPort)
  const metricsToken = options.metricsTokenFile === undefined ? undefined : await tokenIn(options.metricsTokenFile)
  let onDeposed = (): void => undefined
  const deposed = new Promise<number>((resolve) => {
    onDeposed = () => resolve(DEPOSED)
  })
  const coordinator = createCoordinator({
    ...rest,
    ...(door === undefined ? {} : { https: door }),
    webRoot,
    timing: timingOf(options),
    token: owner.token,
    metrics: { readers: options.metrics, token: metricsToken?.token },
    allowedHosts: options.allowedHost?.map((name) => name.toLowerCase()) ?? [],
    trustedProxies: options.trustedProxy ?? [],
    ice: { urls: options.iceServer ?? [], turnSecret: options.turnSecret },
    log,
    onDeposed,
  })
  const drained = drainOnSignal(async () => {
    say('\ndraining; Ctrl-C again leaves at once')
    log({ level: 'info', message: 'draining: runs end their step and write a checkpoint' })
    if (!(await coordinator.drain(SECOND_MS * options.drain)))
      log({ level: 'warn', message: 'a run has steps that are in no checkpoint; the volunteers that stay have them' })
    await coordinator.stop()
    log({ level: 'info', message: 'ended' })
  })
  await coordinator.start()
  await submitTo(coordinator, job, say)
  log({ level: 'info', message: `listens at ${coordinator.url}`, about: listensAt(coordinator) })
  say([...nextSteps(coordinator, owner), ...(await otherMachines(doorsOf(coordinator, options, door)))].join('\n'))
  say('\nCtrl-C drains and stops; twice stops at once.')
  for (const line of [...doubts, ...warnings(options, owner)]) {
    say(line)
    if (options.logFormat === 'json') log({ level: 'warn', message: line })
  }
  if (options.json === true) process.stdout.write(`${JSON.stringify(whereItListens(coordinator, owner, door))}\n`)
  return Promise.race([drained, deposed])
}

type CertifiedDoor = Certificate & { readonly host: string; readonly port: number }

/** All addresses of this machine, unless the operator chose one. */
async function httpsDoor(options: StartOptions, port: number): Promise<CertifiedDoor> {
  const host = options.host === DEFAULT_HOST ? ALL_ADDRESSES : options.host
  return { ...(await certificateOf(options.dataDir, options)), host, port }
}

function doorsOf({ port, httpsPort }: Coordinator, options: StartOptions, door: CertifiedDoor | undefined): Doors {
  const { host, publicUrl } = options
  return { host, port, https: door && { ...door, port: httpsPort ?? door.port }, publicUrl }
}

function whereItListens({ url, port, httpsPort }: Coordinator, { file }: OwnerToken, door: CertifiedDoor | undefined) {
  const https = door === undefined ? {} : { httpsPort, fingerprint: door.fingerprint, selfSigned: door.isOwn }
  return { url, port, tokenFile: file, ...https }
}

function listensAt({ port, httpsPort }: Coordinator): Readonly<Record<string, number>> {
  return { port, ...(httpsPort === undefined ? {} : { httpsPort }) }
}

/** Late: a coordinator without pages does not load what builds them. */
async function builtPages(say: (text: string) => void): Promise<string> {
  const { ensureWebPage } = await import('@starling-grid/client-web/build')
  return ensureWebPage(say)
}

async function submitTo({ runs }: Coordinator, job: JobSpec | undefined, say: (text: string) => void): Promise<void> {
  if (job === undefined) return
  const unfinished = runs.current()
  if (unfinished === undefined) await runs.submit(job)
  else say(`run ${unfinished.job.id} is not finished and goes on; --job was not submitted`)
}

/** What other users of this machine see, or could see. */
function warnings({ tokenIsShown, passwordIsShown }: StartOptions, { file, wasOpen }: OwnerToken): string[] {
  const shown =
    'Warning: --token shows the owner token to every user of this machine in its list of processes; ' +
    'use --token-file FILE or STARLING_TOKEN.'
  const password =
    'Warning: --state shows the password of the database to every user of this machine in its list of processes; ' +
    'use STARLING_STATE or the file ~/.pgpass.'
  const open =
    `Warning: other users of this machine could read ${file} until now; if they may have, ` +
    'delete it and start again for a new token.'
  return [...(tokenIsShown ? [shown] : []), ...(passwordIsShown ? [password] : []), ...(wasOpen ? [open] : [])]
}

function nextSteps({ url, runs }: Coordinator, { token, file, isNew }: OwnerToken): string[] {
  const run = runs.current()
  return [
    `Coordinator at ${url}${run === undefined ? '' : `, run ${run.job.id}`}`,
    '',
    'Next steps',
    `  take part with a browser:   ${url}/`,
    `  take part with this Node:   npm run volunteer -- ${url}`,
    `  watch the run:              ${url}${ROUTES.dashboard}`,
    ...(!isNew
      ? []
      : [
          `  owner's dashboard (once):   ${url}${ROUTES.dashboard}#token=${token}`,
          `  owner token (shown once):   ${token}`,
          `                              kept in ${file}`,
        ]),
  ]
}

/**
 * Resolves with the exit code. Once: runs write a checkpoint, the journal is flushed, volunteers are told. Twice: at
 * once; what was acknowledged is durable anyway.
 */
function drainOnSignal(stop: () => Promise<void>): Promise<number> {
  return new Promise((resolve, reject) => {
    let asked = false
    const onSignal = (): void => {
      if (asked) process.exit(INTERRUPTED)
      asked = true
      stop().then(() => resolve(0), reject)
    }
    process.on('SIGINT', onSignal)
    process.on('SIGTERM', onSignal)
  })
}

function say(text: string): void {
  process.stderr.write(`${text}\n`)
}
