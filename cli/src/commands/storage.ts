// `starling backup`, `restore` and `migrate`: the jobs of one storage copied into another.
import { copyFile, cp, mkdir, readdir, rename } from 'node:fs/promises'
import { join } from 'node:path'
import {
  copyStorage,
  type CopyCounts,
  FolderOwner,
  type OpenStorage,
  openStorage,
  STATE_FILE,
  type StoragePlaces,
} from '@starling-grid/coordinator'
import { GridError } from '@starling-grid/protocol'
import { Command, Option } from 'commander'
import { bytesText } from '../byte-size.ts'
import { blobsOption, stateOption } from '../storage-options.ts'
import { ProgressLine } from '../terminal/progress-line.ts'

/** What the owner of a data folder needs besides jobs and blobs, where it is there. */
const OWN_FILES = ['owner-token']
/** Names and statistics of imported datasets; their shards are blobs. */
const DATASETS = 'datasets'
/** what other users of this machine may do with files that are made here: nothing */
const OWN_MASK = 0o077
const MIGRATED = `${STATE_FILE}.migrated`

export async function backup(argv: string[]): Promise<number> {
  const { folder, places, json } = parse('backup', argv)
  await requireEmpty(folder)
  return copied({ from: places, to: { dataDir: folder }, json, done: `the backup in ${folder}` })
}

export async function restore(argv: string[]): Promise<number> {
  const { folder, places, json } = parse('restore', argv)
  await requireBackup(folder)
  return owning(places.dataDir, () =>
    copied({ from: { dataDir: folder }, to: places, json, done: 'what `starling start` goes on with' }),
  )
}

export async function migrate(argv: string[]): Promise<number> {
  process.umask(OWN_MASK)
  const program = new Command('starling migrate')
    .description(
      "Moves the jobs of a data folder into a database, and with --blobs their data into a bucket. The folder's " +
        'coordinator must have ended; start it again with the same options, and its runs go on.',
    )
    .option('--data-dir <folder>', 'the data folder', 'starling-data')
    .addOption(stateOption().makeOptionMandatory())
    .addOption(blobsOption())
    .addOption(jsonOption())
    .exitOverride()
    .parse(argv, { from: 'user' })
  const { json, ...places } = program.opts<StoragePlaces & { json?: boolean }>()
  const { dataDir } = places
  return owning(dataDir, async () => {
    await requireBackup(dataDir)
    const code = await copied({ from: { dataDir }, to: places, json, done: 'the new place' })
    // A start that forgets --state must not go on with the older copy.
    for (const end of ['', '-wal', '-shm'])
      await rename(join(dataDir, STATE_FILE + end), join(dataDir, MIGRATED + end)).catch(ignoreAbsent)
    return code
  })
}

interface Parsed {
  readonly folder: string
  readonly places: StoragePlaces
  readonly json: boolean | undefined
}

function parse(name: 'backup' | 'restore', argv: string[]): Parsed {
  process.umask(OWN_MASK)
  const program = new Command(`starling ${name}`)
    .description(
      name === 'backup'
        ? 'Copies all jobs, their versions and data into a new folder; the coordinator may go on meanwhile.'
        : 'Copies the jobs of a backup into a data folder or a database that does not have them. ' +
            "The data folder's coordinator must have ended.",
    )
    .argument('<folder>', name === 'backup' ? 'a folder that is empty or does not exist' : 'the backup')
    .option('--data-dir <folder>', 'data folder of the coordinator', 'starling-data')
    .addOption(stateOption())
    .addOption(blobsOption())
    .addOption(jsonOption())
    .exitOverride()
    .parse(argv, { from: 'user' })
  const { json, ...places } = program.opts<StoragePlaces & { json?: boolean }>()
  return { folder: program.args[0] ?? '', places, json }
}

function jsonOption(): Option {
  return new Option('--json', 'print what was copied as one JSON value on stdout')
}

/** No coordinator uses the folder meanwhile. @throws GridError 'folder-in-use' */
async function owning<T>(dataDir: string, work: () => Promise<T>): Promise<T> {
  const owner = await FolderOwner.claim(dataDir, { takeOver: false, onDisplaced: () => undefined })
  try {
    return await work()
  } finally {
    await owner.release()
  }
}

interface StorageCopy {
  readonly from: StoragePlaces
  readonly to: StoragePlaces
  readonly json: boolean | undefined
  /** what came of it, for a sentence */
  readonly done: string
}

async function copied({ from, to, json, done }: StorageCopy): Promise<number> {
  const line = new ProgressLine()
  await mkdir(to.dataDir, { recursive: true })
  const counts = await withStorage(from, (source) =>
    withStorage(to, (target) => copyStorage(source, target, (now) => line.show(summary(now)))),
  )
  if (from.dataDir !== to.dataDir) await copyOwn(from.dataDir, to.dataDir)
  line.say(`${summary(counts)}: ${done}`)
  if (json === true) console.log(JSON.stringify(counts))
  return 0
}

async function copyOwn(from: string, to: string): Promise<void> {
  for (const file of OWN_FILES) await copyFile(join(from, file), join(to, file)).catch(ignoreAbsent)
  const options = { recursive: true, errorOnExist: false, force: false } as const
  await cp(join(from, DATASETS), join(to, DATASETS), options).catch(ignoreAbsent)
}

async function withStorage<T>(places: StoragePlaces, work: (storage: OpenStorage) => Promise<T>): Promise<T> {
  const storage = await openStorage(places)
  try {
    return await work(storage)
  } finally {
    await storage.store.close()
  }
}

function summary({ jobs, steps, blobs, bytes }: CopyCounts): string {
  return `copied ${jobs} jobs with ${steps} steps, ${blobs} files (${bytesText(bytes)})`
}

async function requireEmpty(folder: string): Promise<void> {
  const found = await readdir(folder).catch(() => [])
  if (found.length > 0)
    throw new GridError(
      'usage',
      `expected an empty folder for the backup, got ${folder} with ${found[0]}; name another`,
    )
}

async function requireBackup(folder: string): Promise<void> {
  const found: readonly string[] = await readdir(folder).catch(() => [])
  if (!found.includes(STATE_FILE))
    throw new GridError('usage', `expected ${STATE_FILE} in ${folder}, got none; name a folder that has one`)
}

function ignoreAbsent(error: unknown): void {
  if (!(error instanceof Error && 'code' in error && error.code === 'ENOENT')) throw error
}
