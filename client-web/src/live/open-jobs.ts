// The jobs that a page may choose from, and the one that its address names: `?job=ID`.
import { type JobId, jobId, type JobList, ROUTES } from '@starling-grid/protocol'
import { useEffect, useState } from 'preact/hooks'

export interface ListedJob {
  readonly id: JobId
  readonly name: string
  readonly finished: boolean
}

/** What the address of the page asks for. */
export function askedJob(search: string): JobId | undefined {
  const asked = new URLSearchParams(search).get('job')
  return asked === null || asked === '' ? undefined : jobId(asked)
}

/** Public jobs, and those of the token's owner. Empty until the coordinator answers, and where it does not. */
export function useJobs(token?: string): readonly ListedJob[] {
  const [jobs, setJobs] = useState<readonly ListedJob[]>([])
  useEffect(() => {
    const left = new AbortController()
    listed(left.signal, token).then(setJobs, () => undefined) // a page works without a choice
    return () => left.abort()
  }, [token])
  return jobs
}

async function listed(signal: AbortSignal, token: string | undefined): Promise<readonly ListedJob[]> {
  const headers = token === undefined ? {} : { authorization: `Bearer ${token}` }
  const response = await fetch(ROUTES.jobs, { signal, headers })
  if (!response.ok) return []
  const { jobs } = (await response.json()) as JobList
  return jobs.map(({ finishedAt, job: { id, name } }) => ({ id, name, finished: finishedAt !== null }))
}
