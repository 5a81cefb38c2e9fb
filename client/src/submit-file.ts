// A job of a file, YAML or JSON, to a coordinator: as `starling job submit` and programs send it.
import { dirname, resolve } from 'node:path'
import { isLoopbackUrl, MistakesError, type RunView } from '@starling-grid/protocol'
import type { CoordinatorApi } from './coordinator-api.ts'
import { locatedDataset, readJobFile } from './job-file.ts'

/** @throws GridError 'job-invalid' with the line of each mistake; what the coordinator refuses */
export async function submitFile(api: CoordinatorApi, file: string): Promise<RunView> {
  const { job: written, located } = await readJobFile(file)
  // The coordinator of this machine reads the files that the job names: paths are relative to the job's file.
  const dataset = isLoopbackUrl(api.url)
    ? locatedDataset(written.dataset, (path) => resolve(dirname(file), path))
    : written.dataset
  return api.submit({ ...written, dataset }).catch((error: unknown) => {
    throw error instanceof MistakesError ? located(error) : error
  })
}
