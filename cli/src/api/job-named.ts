import { ApiRefusal, type CoordinatorApi } from '@starling-grid/client/coordinator-api'
// A job as people name it: by its id, by the beginning of it, or nearly so.
import { GridError, nearest, plainText } from '@starling-grid/protocol'

const NOT_FOUND = 404
/** What makes an id of a job's name (coordinator/src/jobs/jobs.ts). */
const SUFFIX = /-[0-9a-f]+$/

/** The job's id. @throws GridError 'usage' that names the job that was probably meant */
export async function jobNamed(api: CoordinatorApi, name: string): Promise<string> {
  const { jobs, damaged = [] } = await api.jobs()
  const ids = [...jobs.map(({ job }) => job.id), ...damaged.map(({ id }) => id)]
  const begun = ids.filter((id) => name !== '' && id.startsWith(name))
  if (ids.some((id) => id === name)) return name
  if (begun.length === 1 && begun[0] !== undefined) return begun[0]
  // A caller without the token sees public jobs only: the coordinator says what the name is to it.
  if (ids.length === 0) return (await api.run(name).catch((error: unknown) => refuse(error, api.url, name))).job.id
  throw unknownJob(name, api.url, begun.length > 1 ? begun.join(' or ') : nearestJob(name, ids))
}

function refuse(error: unknown, url: string, name: string): never {
  throw error instanceof ApiRefusal && error.status === NOT_FOUND ? unknownJob(name, url, undefined) : error
}

function unknownJob(name: string, url: string, meant: string | undefined): GridError {
  const advice = meant === undefined ? '`starling job list` names them' : `did you mean ${meant}?`
  return new GridError('usage', `expected the id of a job at ${url}, got "${plainText(name)}"; ${advice}`)
}

/** The job whose id, or the name in it, was probably meant. */
export function nearestJob(name: string, ids: readonly string[]): string | undefined {
  const idOf = new Map(ids.flatMap((id) => [[id.replace(SUFFIX, ''), id] as const, [id, id] as const]))
  const meant = nearest(name, idOf.keys())
  return meant === undefined ? undefined : idOf.get(meant)
}
