// `job`: what an owner does with the jobs of a coordinator, over its HTTP API.
import { rename, rm } from 'node:fs/promises'
import { basename, resolve } from 'node:path'
import { createInterface } from 'node:readline/promises'
import { openApi } from '@starling-grid/client/connection'
import { ApiRefusal, bytesOf, type CoordinatorApi, saveBody } from '@starling-grid/client/coordinator-api'
import { submitFile, submitJob } from '@starling-grid/client/submit-file'
import { watchRun } from '@starling-grid/client/watch-run'
import { readModelFile } from '@starling-grid/model'
import { GridError, plainText, type RunView } from '@starling-grid/protocol'
import { Command } from 'commander'
import { jobNamed } from '../api/job-named.ts'
import { type AnswerFlags, subcommand, tell } from '../api/subcommand.ts'
import { wholeNumber } from '../arguments.ts'
import {
  convertModel,
  type ConvertOptions,
  type ExportFormat,
  FOLDER_FORMATS,
  type FolderFormat,
  formatOption,
  withEnding,
  type WrittenModel,
  writtenLines,
} from '../export-formats.ts'
import { keptLines, listLines, progressLine, runLines } from '../job/describe-run.ts'
import { eventLine } from '../job/event-log.ts'
import { forkOf } from '../job/fork.ts'
import { displayOn, watchJob } from '../job/watch-job.ts'

/** What one subcommand gets. */
interface Called<Flags extends AnswerFlags> {
  readonly api: CoordinatorApi
  readonly flags: Flags
}

export async function job(argv: string[]): Promise<number> {
  const program = new Command('starling job')
    .description(
      'Submits, follows and ends jobs of a coordinator. Jobs are named by their id, or by its beginning. ' +
        'Exit code 0 when it is done, 1 when it failed, 2 when the command was called wrongly.',
    )
    .exitOverride()
  addSubmit(program)
  addFork(program)
  addLooks(program)
  addChanges(program)
  addPauses(program)
  addExport(program)
  addDelete(program)
  await program.parseAsync(argv, { from: 'user' })
  return 0
}

/** Commander gives a handler its arguments, the options and the command. */
function oneJob<Flags extends AnswerFlags>(
  act: (id: string, called: Called<Flags>) => Promise<void>,
): (name: string, flags: Flags) => Promise<void> {
  return async (name, flags) => {
    const api = await openApi(flags)
    await act(await jobNamed(api, name), { api, flags })
  }
}

function addSubmit(program: Command): void {
  subcommand(program, 'submit', 'Begins the job of a file.')
    .argument('<file>', 'YAML or JSON file with a job, such as examples/nanogpt-shakespeare-char.json')
    .option('--watch', 'follow it until it ends')
    .action(async (file: string, flags: BeginFlags) => {
      const api = await openApi(flags)
      await begun(await submitFile(api, file), { api, flags })
    })
}

type BeginFlags = AnswerFlags & { readonly watch?: boolean }

async function begun(run: RunView, { api, flags }: Called<BeginFlags>): Promise<void> {
  if (flags.watch !== true) return tell(flags, run, [`${run.job.id} begins: ${plainText(run.reason)}`])
  process.stderr.write(`${run.job.id} begins\n`)
  await follow(run.job.id, { api, flags })
}

function addFork(program: Command): void {
  subcommand(program, 'fork', 'Begins a job like another, with the parameters of its newest checkpoint.')
    .argument('<id>')
    .argument('[changes]', 'YAML or JSON file with the fields that are other; null leaves one out')
    .option('--version <n>', 'another checkpoint that the job keeps', wholeNumber(1))
    .option('--watch', 'follow it until it ends')
    .action(async (name: string, changes: string | undefined, flags: BeginFlags & { readonly version?: number }) => {
      const api = await openApi(flags)
      const fork = await forkOf(api, await jobNamed(api, name), { changes, version: flags.version })
      await begun(await submitJob(api, fork), { api, flags })
    })
}

function addLooks(program: Command): void {
  subcommand(program, 'list', 'All jobs, the newest first.').action(async (flags: AnswerFlags) => {
    const list = await (await openApi(flags)).jobs()
    tell(flags, list, listLines(list))
  })
  subcommand(program, 'show', 'One job: progress, loss, validation, members.')
    .argument('<id>')
    .action(
      oneJob(async (id, { api, flags }) => {
        const [run, kept] = await Promise.all([api.run(id), keptBy(api, id)])
        tell(flags, kept === undefined ? run : { ...run, kept }, [...runLines(run), ...keptLines(run, kept ?? [])])
      }),
    )
  subcommand(program, 'watch', 'Follows a job until it ends, also over restarts of its coordinator.')
    .argument('<id>')
    .action(oneJob(follow))
  subcommand(program, 'logs', 'What happened to a job.')
    .argument('<id>')
    .option('--follow', 'and what happens from now on, until the job ends or Ctrl-C')
    .action(oneJob(logs))
}

/** Steps of its checkpoints; undefined for a reader that is no owner. */
async function keptBy(api: CoordinatorApi, id: string): Promise<number[] | undefined> {
  return api.checkpoints(id).then(
    (checkpoints) => checkpoints.map(({ v }) => v),
    (error: unknown) => {
      if (error instanceof ApiRefusal) return undefined
      throw error
    },
  )
}

async function follow(id: string, { api, flags }: Called<AnswerFlags>): Promise<void> {
  const finished = await watchJob(api, id, displayOn(flags.json === true ? process.stderr : process.stdout))
  tell(flags, finished, [`${id} is finished: ${plainText(finished.reason)}`])
}

async function logs(id: string, { api, flags }: Called<AnswerFlags & { readonly follow?: boolean }>): Promise<void> {
  if (flags.follow !== true) {
    const events = await api.events(id)
    return tell(flags, { events }, events.map(eventLine))
  }
  const out = flags.json === true ? process.stderr : process.stdout
  const onAway = (why: string): void => void process.stderr.write(`no answer, trying again: ${plainText(why)}\n`)
  for await (const update of watchRun(api, id, { onAway }))
    if (update.type === 'event') out.write(`${eventLine(update.event)}\n`)
  if (flags.json === true) tell(flags, { events: await api.events(id) }, [])
}

function addChanges(program: Command): void {
  subcommand(program, 'stop', 'Ends a job with the epoch that it is in, validated and written as at every end.')
    .argument('<id>')
    .action(
      oneJob(async (id, { api, flags }) => {
        const epochs = await api.stop(id)
        const run = await api.run(id)
        tell(flags, run, [stopText(run, epochs)])
      }),
    )
}

function addDelete(program: Command): void {
  const text = 'Removes a job that has ended or never began: its journal, its versions, and data that no other job has.'
  subcommand(program, 'delete', `${text} Datasets of a name stay.`)
    .argument('<id>')
    .option('--yes', 'without asking')
    .action(
      oneJob(async (id, { api, flags }: Called<AnswerFlags & { readonly yes?: boolean }>) => {
        if (flags.yes !== true && !(await isSure(`Delete ${id} with all its versions? They cannot be brought back.`)))
          return tell(flags, { deleted: null }, [`${id} stays`])
        await api.delete(id)
        tell(flags, { deleted: id }, [`${id} is deleted`])
      }),
    )
}

/** @throws GridError 'usage' where there is no terminal to ask on */
async function isSure(question: string): Promise<boolean> {
  if (!process.stdin.isTTY)
    throw new GridError('usage', 'expected an answer on a terminal, got none; say --yes to delete without asking')
  const asking = createInterface({ input: process.stdin, output: process.stderr })
  try {
    return /^y(es)?$/i.test((await asking.question(`${question} [y/N] `)).trim())
  } finally {
    asking.close()
  }
}

function addPauses(program: Command): void {
  subcommand(program, 'pause', 'Lets a job rest: it ends its step, writes a checkpoint and waits, also over restarts.')
    .argument('<id>')
    .action(oneJob((id, called: Called<AnswerFlags>) => setPaused(id, true, called)))
  subcommand(program, 'resume', 'Lets a paused job go on.')
    .argument('<id>')
    .action(oneJob((id, called: Called<AnswerFlags>) => setPaused(id, false, called)))
}

async function setPaused(id: string, wanted: boolean, { api, flags }: Called<AnswerFlags>): Promise<void> {
  const paused = await api.setPaused(id, wanted)
  const now = paused ? 'is paused; its volunteers go to other jobs' : 'goes on when it has volunteers'
  tell(flags, { job: id, paused }, [paused === wanted ? `${id} ${now}` : `${id} is finished already`])
}

function stopText(run: RunView, epochs: number): string {
  if (run.phase === 'finished') return `${run.job.id} is finished already: ${plainText(run.reason)}`
  return `${run.job.id} ends with epoch ${epochs}, and its model is kept\n${progressLine(run)}`
}

interface ExportFlags extends AnswerFlags {
  readonly out?: string
  readonly version?: 'latest' | 'best' | number
  readonly format: ExportFormat | FolderFormat
}

function addExport(program: Command): void {
  subcommand(program, 'export', 'Saves the model of a job, for Starling and PyTorch or in the format of others.')
    .argument('<id>')
    .option(
      '--version <which>',
      'latest, best (of the confirmed validations), or the step of a kept checkpoint',
      asVersion,
    )
    .addOption(formatOption(['safetensors', 'pytorch-script', 'onnx', ...FOLDER_FORMATS]))
    .option('--out <file>', "where it is written (the job's id and version)")
    .action(
      oneJob(async (id, { api, flags }: Called<ExportFlags>) => {
        const { format } = flags
        const response = await api.export(id, await stepOf(id, { api, flags }))
        if (format === 'peft' || format === 'merged') return saveFolder(response, { id, api, flags, format })
        const file = resolve(flags.out ?? withEnding(fileNameOf(response, `${id}.safetensors`), format))
        const written = await saveAs(response, { file, format, name: `the model of ${id}` })
        tell(flags, { job: id, ...written }, writtenLines(written))
      }),
    )
}

/** @throws GridError 'usage' of a model that is no tuned language model */
async function saveFolder(
  response: Response,
  { id, api, flags, format }: Called<ExportFlags> & { readonly id: string; readonly format: FolderFormat },
): Promise<void> {
  const name = fileNameOf(response, id).replace(/\.safetensors$/, '')
  const folder = resolve(flags.out ?? name)
  // What computes is loaded for this format alone.
  const { modelOfJob } = await import('../language/open-language-model.ts')
  const { writeAdapters, writeMerged } = await import('../language/write-folder.ts')
  const { model, base } = await modelOfJob(readModelFile(await bytesOf(response), `the model of ${id}`), api)
  const written =
    format === 'peft' ? await writeAdapters(folder, model) : await writeMerged(folder, model, base?.frozen)
  tell(flags, { job: id, ...written }, writtenLines(written))
}

function asVersion(text: string): 'latest' | 'best' | number {
  return text === 'latest' || text === 'best' ? text : wholeNumber(0)(text)
}

/** Undefined: the newest. @throws GridError 'usage' where no validation is confirmed */
async function stepOf(id: string, { api, flags: { version } }: Called<ExportFlags>): Promise<number | undefined> {
  if (version !== 'best') return version === 'latest' ? undefined : version
  const { best } = await api.run(id)
  if (best !== null) return best.v
  throw new GridError(
    'usage',
    `expected a confirmed validation of ${id}, got none; take --version latest, or lend it a second volunteer`,
  )
}

/** As the coordinator names it; the name leads into no other folder. */
function fileNameOf({ headers }: Response, otherwise: string): string {
  const [, name = otherwise] = /filename="([^"]+)"/.exec(headers.get('content-disposition') ?? '') ?? []
  return /^[\w.-]+$/.test(name) ? basename(name) : otherwise
}

/** A file is there when it is whole. @throws GridError 'folder-unwritable', 'coordinator-lost' */
async function saveAs(
  response: Response,
  { file, format, name }: Omit<ConvertOptions, 'format'> & { readonly format: ExportFormat },
): Promise<WrittenModel> {
  const unfinished = `${file}.part`
  try {
    const bytes = await saveBody(response, unfinished)
    if (format !== 'safetensors') return await convertModel(unfinished, { file, format, name })
    await rename(unfinished, file)
    return { file, bytes }
  } finally {
    await rm(unfinished, { force: true })
  }
}
