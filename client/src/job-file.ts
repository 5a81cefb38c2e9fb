// Job files, YAML or JSON: from bytes to a checked job, with every mistake at its line.
import { parseJob } from '@starling-grid/model'
import { GridError, type JobSpec, MistakesError } from '@starling-grid/protocol'
import { readYamlFile } from './yaml-file.ts'

export interface JobFile {
  /** paths as they are written: relative to what, the command decides */
  readonly job: JobSpec
  /** The same refusal with the lines of this file, also of what only the coordinator finds. */
  readonly located: (error: MistakesError) => GridError
}

/** @throws GridError 'job-invalid' with a line for each mistake: file, line, column, path, expected, found and hint */
export async function readJobFile(file: string): Promise<JobFile> {
  const { value, located } = await readYamlFile(file, { holds: 'a job', code: 'job-invalid' })
  const locatedAll = (error: MistakesError): GridError =>
    new GridError(error.code, error.mistakes.map(located).join('\n'))
  try {
    return { job: parseJob(value), located: locatedAll }
  } catch (error) {
    throw error instanceof MistakesError ? locatedAll(error) : error
  }
}

/** The job with each path changed that it names: of its dataset, and of the file that it begins with. */
export function locatedJob(job: JobSpec, path: (named: string) => string): JobSpec {
  const { dataset, from } = job
  return {
    ...job,
    dataset: locatedDataset(dataset, path),
    ...(from?.file === undefined ? {} : { from: { ...from, file: path(from.file) } }),
  }
}

/** The dataset with each path that it names changed. */
export function locatedDataset(dataset: JobSpec['dataset'], path: (named: string) => string): JobSpec['dataset'] {
  switch (dataset.source) {
    case undefined:
    case 'named':
    case 'digits':
      return dataset
    case 'mnist':
      return { ...dataset, folder: path(dataset.folder) }
    case 'text':
      return { ...dataset, path: path(dataset.path) }
    default:
      return dataset satisfies never
  }
}
