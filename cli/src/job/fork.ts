// A job like another one, which begins with a version of it: its description, with the fields of a file in place of its
// own.
import { dirname, resolve } from 'node:path'
import type { CoordinatorApi } from '@starling-grid/client/coordinator-api'
import { type JobFile, locatedJob } from '@starling-grid/client/job-file'
import { readYamlFile, type YamlFile } from '@starling-grid/client/yaml-file'
import { parseJob } from '@starling-grid/model'
import { GridError, isLoopbackUrl, type JobSpec, MistakesError, shown } from '@starling-grid/protocol'

export interface ForkOptions {
  /** file with the fields that are other */
  readonly changes?: string | undefined
  /** of the other job; absent: its newest checkpoint */
  readonly version?: number | undefined
}

type JsonFields = Readonly<Record<string, unknown>>

/** @throws GridError 'job-invalid' with a line of the file for each mistake */
export async function forkOf(api: CoordinatorApi, id: string, { changes, version }: ForkOptions): Promise<JobFile> {
  const { from: _from, reference: _reference, ...other } = await api.spec(id)
  const read = changes === undefined ? undefined : await changesIn(changes)
  const located = (error: MistakesError): GridError =>
    read === undefined ? error : new GridError(error.code, error.mistakes.map(read.located).join('\n'))
  const begun = { ...other, from: { job: id, ...(version === undefined ? {} : { version }) } }
  try {
    const job = parseJob(merged(begun, read?.fields ?? {}))
    return { job: changes === undefined ? job : withPathsOf(changes, job, { api, named: read?.fields ?? {} }), located }
  } catch (error) {
    throw error instanceof MistakesError ? located(error) : error
  }
}

async function changesIn(file: string): Promise<Pick<YamlFile, 'located'> & { readonly fields: JsonFields }> {
  const { value, located } = await readYamlFile(file, { holds: 'changes of a job', code: 'job-invalid' })
  if (isFields(value)) return { fields: value, located }
  throw new GridError('job-invalid', located({ path: [], expected: 'fields of a job', found: shown(value) }))
}

/** JSON Merge Patch (RFC 7396): fields of objects one by one, null leaves a field out, all else takes its place. */
export function merged(value: unknown, patch: unknown): unknown {
  if (!isFields(patch)) return patch
  const fields = new Map(Object.entries(isFields(value) ? value : {}))
  for (const [name, change] of Object.entries(patch))
    if (change === null) fields.delete(name)
    else fields.set(name, merged(fields.get(name), change))
  return Object.fromEntries(fields)
}

function isFields(value: unknown): value is JsonFields {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Paths that the file names are relative to it, for the coordinator of this machine. */
function withPathsOf(
  file: string,
  job: JobSpec,
  { api, named }: { readonly api: CoordinatorApi; readonly named: JsonFields },
): JobSpec {
  if (!isLoopbackUrl(api.url)) return job
  const dataset = isFields(named['dataset']) ? Object.values(named['dataset']) : []
  return locatedJob(job, (path) => (dataset.includes(path) ? resolve(dirname(file), path) : path))
}
