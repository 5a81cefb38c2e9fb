// `starling start`: options, start, next steps, stop on signal. The one place where a thrown error becomes a message.
import { readFile } from 'node:fs/promises'
import { describeError, GridError, isGridError, type JobSpec, parseJobSpec } from '@starling-grid/protocol'
import { CommanderError } from 'commander'
import { type Coordinator, createCoordinator } from './net/server.ts'
import { parseOptions, type StartOptions, timingOf } from './options.ts'
import { type OwnerToken, ownerToken } from './owner-token.ts'

const FAILURE = 1
/** what other users of this machine may do with files that are made here: nothing */
const OWN_FILES = 0o077
const WRONG_USE = 2
/** exit code of a process that was told twice to stop */
const INTERRUPTED = 130
/** exit code of a process whose data folder another coordinator took over: a supervisor must not start it again */
const DEPOSED = 3

async function start(argv: readonly string[]): Promise<void> {
  const options = parseOptions(argv)
  process.umask(OWN_FILES) // data, models and the journal are of this user alone
  const job = options.job === undefined ? undefined : await readJobFile(options.job)
  const owner = await ownerToken(options.dataDir, options)
  const coordinator = createCoordinator({
    ...options,
    timing: timingOf(options),
    token: owner.token,
    trustedProxies: options.trustedProxy ?? [],
    ice: { urls: options.iceServer ?? [], turnSecret: options.turnSecret },
    log: say,
    onDeposed: () => process.exit(DEPOSED),
  })
  drainOnSignal(() => coordinator.stop())
  await coordinator.start()
  const unfinished = coordinator.runs.current()
  if (job !== undefined && unfinished === undefined) await coordinator.runs.submit(job)
  if (job !== undefined && unfinished !== undefined)
    say(`run ${unfinished.job.id} is not finished and goes on; --job was not submitted`)
  say(nextSteps(coordinator, owner))
  for (const line of warnings(options, owner)) say(line)
  if (options.json === true)
    process.stdout.write(`${JSON.stringify({ url: coordinator.url, port: coordinator.port, tokenFile: owner.file })}\n`)
}

/** @throws GridError 'job-invalid' */
async function readJobFile(file: string): Promise<JobSpec> {
  const text = await readFile(file, 'utf8').catch((cause: unknown) => {
    throw new GridError('job-invalid', `The job ${file} cannot be read: ${describeError(cause)}`, { cause })
  })
  try {
    return parseJobSpec(JSON.parse(text))
  } catch (cause) {
    throw new GridError(
      'job-invalid',
      `The job ${file} is not right: ${cause instanceof Error ? cause.message : String(cause)}`,
      { cause },
    )
  }
}

/** What other users of this machine see, or could see. */
function warnings({ tokenIsShown }: StartOptions, { file, wasOpen }: OwnerToken): string[] {
  const shown =
    'Warning: --token shows the owner token to every user of this machine in its list of processes; use --token-file FILE or STARLING_TOKEN.'
  const open = `Warning: other users of this machine could read ${file} until now; if they may have, delete it and start again for a new token.`
  return [...(tokenIsShown ? [shown] : []), ...(wasOpen ? [open] : [])]
}

function nextSteps({ url, runs }: Coordinator, { token, file, isNew }: OwnerToken): string {
  const run = runs.current()
  return [
    `Coordinator at ${url}${run === undefined ? '' : `, run ${run.job.id}`}`,
    '',
    'Next steps',
    `  take part with a browser:   ${url}/`,
    `  take part with this Node:   npm run volunteer -- ${url}`,
    `  watch the run:              ${url}/dashboard`,
    ...(!isNew
      ? []
      : [
          `  owner's dashboard (once):   ${url}/dashboard#token=${token}`,
          `  owner token (shown once):   ${token}`,
          `                              kept in ${file}`,
        ]),
    '',
    'Ctrl-C drains and stops; twice stops at once.',
  ].join('\n')
}

/** Once: the journal is flushed, volunteers are told. Twice: at once; what was acknowledged is durable anyway. */
function drainOnSignal(stop: () => Promise<void>): void {
  let asked = false
  const onSignal = (): void => {
    if (asked) process.exit(INTERRUPTED)
    asked = true
    say('\ndraining; Ctrl-C again leaves at once')
    stop().then(() => process.exit(0), fail)
  }
  process.on('SIGINT', onSignal)
  process.on('SIGTERM', onSignal)
}

function say(text: string): void {
  process.stderr.write(`${text}\n`)
}

function fail(error: unknown): never {
  // Commander has said what is wrong, or shown the help that was asked for.
  if (error instanceof CommanderError) process.exit(error.exitCode === 0 ? 0 : WRONG_USE)
  say(describeError(error))
  if (!isGridError(error) && error instanceof Error) say(error.stack ?? '')
  process.exit(isGridError(error) && error.code === 'usage' ? WRONG_USE : FAILURE)
}

start(process.argv.slice(2)).catch(fail)
