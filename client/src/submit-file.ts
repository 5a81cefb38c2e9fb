// A job of a file, YAML or JSON, to a coordinator: as `starling job submit` and programs send it.
import { dirname, resolve } from 'node:path'
import { isLoopbackUrl, MistakesError, type RunView } from '@starling-grid/protocol'
import type { CoordinatorApi } from './coordinator-api.ts'
import { type JobFile, locatedJob, readJobFile } from './job-file.ts'

/** @throws GridError 'job-invalid' with the line of each mistake; what the coordinator refuses */
export async function submitFile(api: CoordinatorApi, file: string): Promise<RunView> {
  const { job, located } = await readJobFile(file)
  // The coordinator of this machine reads the files that the job names: paths are relative to the job's file.
  const own = isLoopbackUrl(api.url) ? locatedJob(job, (path) => resolve(dirname(file), path)) : job
  return submitJob(api, { job: own, located })
}

/** @throws GridError what the coordinator refuses, with lines of the job's file */
export function submitJob(api: CoordinatorApi, { job, located }: JobFile): Promise<RunView> {
  return api.submit(job).catch((error: unknown) => {
    throw error instanceof MistakesError ? located(error) : error
  })
}
