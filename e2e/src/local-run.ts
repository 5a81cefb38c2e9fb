// What commands that train on this machine share: how they end early, and where they leave the model.
import { mkdir } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { GridError } from '@starling-grid/protocol'
import type { Grid } from './grid.ts'
import { earlyEnd } from './processes.ts'

/** exit code of a process that was told twice to stop */
const INTERRUPTED = 130

/** Writes the trained model to `file`; the path of what was written. */
export async function keepModel(grid: Grid, job: string, file: string): Promise<string> {
  const folder = dirname(resolve(file))
  await mkdir(folder, { recursive: true }).catch((cause: unknown) => {
    throw new GridError('folder-unwritable', `${folder} cannot be created; name another folder with --out`, { cause })
  })
  await grid.exportModel(job, resolve(file))
  return resolve(file)
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
