// What commands that train on this machine share: how they end early, and where they leave the model.
import { mkdir } from 'node:fs/promises'
import { availableParallelism } from 'node:os'
import { dirname, resolve } from 'node:path'
import { DEFAULT_PORT, GridError, ROUTES } from '@starling-grid/protocol'
import { Grid, type GridDoors, type LocalGridOptions } from './grid/grid.ts'
import { earlyEnd } from './grid/processes.ts'
import { otherMachines } from './other-machines.ts'
import type { ProgressLine } from './terminal/progress-line.ts'

/** exit code of a process that was told twice to stop */
const INTERRUPTED = 130

/** The named port must be free; the default one may give way, and says so by its URL. */
export async function startLocalGrid({
  port,
  ...options
}: Omit<LocalGridOptions, 'port'> & { readonly port: number | undefined }): Promise<Grid> {
  if (port !== undefined) return Grid.start({ ...options, port })
  try {
    return await Grid.start({ ...options, port: DEFAULT_PORT })
  } catch {
    return Grid.start({ ...options, port: 0 })
  }
}

/** What a command line says of them. */
export function doorsIn({ host, https, cert, key, publicUrl }: GridDoors): GridDoors {
  const named = Object.entries({ host, https, cert, key, publicUrl }).filter(([, value]) => value !== undefined)
  return Object.fromEntries(named)
}

export async function nextSteps(line: ProgressLine, grid: Grid): Promise<void> {
  const { url } = grid
  const own = grid.isPrivate ? '' : `#token=${grid.token}`
  line.say(
    [
      'Next steps',
      `  open   ${url}            lend this browser's GPU, or another device's`,
      `  watch  ${url}${ROUTES.dashboard}${own}  loss, accuracy, the ring`,
      `  add    npm run volunteer -- ${url}`,
      '  stop   Ctrl-C',
      ...(await otherMachines(grid.doors)),
      '',
    ].join('\n'),
  )
}

export async function keepServing(line: ProgressLine, url: string, stopped: Promise<undefined>): Promise<void> {
  line.say(`\nThe dashboard stays at ${url}${ROUTES.dashboard} until Ctrl-C.`)
  await stopped
}

/** Writes the trained model to `file`; the path of what was written. */
export async function keepModel(grid: Grid, job: string, file: string): Promise<string> {
  const folder = dirname(resolve(file))
  await mkdir(folder, { recursive: true }).catch((cause: unknown) => {
    throw new GridError(
      'folder-unwritable',
      `expected a folder that can be created, got ${folder}; name another with --out`,
      { cause },
    )
  })
  await grid.exportModel(job, resolve(file))
  return resolve(file)
}

/** Computing threads of each of some volunteers, which share the cores of this machine. */
export function threadsEach(volunteers: number): number {
  return Math.max(1, Math.floor(availableParallelism() / volunteers))
}

/** A volunteer of ours that ends while the run goes on has something to say. */
export function failEarly(child: Parameters<typeof earlyEnd>[0], ended: number | string): Promise<never> {
  return ended === 0 ? new Promise(() => undefined) : Promise.reject(earlyEnd(child, ended))
}

/** Once: everything is stopped in order. Twice: at once. */
export function stopOnSignal(): Promise<undefined> {
  return new Promise((resolveStop) => {
    let asked = false
    const onSignal = (): void => {
      if (asked) process.exit(INTERRUPTED)
      asked = true
      process.stderr.write('\nstopping; Ctrl-C again stops at once\n')
      resolveStop(undefined)
    }
    process.on('SIGINT', onSignal)
    process.on('SIGTERM', onSignal)
  })
}
