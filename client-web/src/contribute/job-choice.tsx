// Which job this tab lends itself to: any, or one that the visitor chose. `/?job=ID` chooses one from the start.
import { allPages, type JobId, jobId, type JobList, ROUTES } from '@starling-grid/protocol'
import { useEffect, useState } from 'preact/hooks'

interface ChosenJob {
  readonly id: JobId
  readonly name: string
}

interface JobChoiceProps {
  /** undefined: any */
  readonly job: JobId | undefined
  readonly onChange: (job: JobId | undefined) => void
}

/** Nothing to choose where there is one job. */
export function JobChoice({ job, onChange }: JobChoiceProps) {
  const jobs = useOpenJobs(job)
  if (job === undefined && jobs.length < 2) return null
  return (
    <label class="job-choice">
      <span>for</span>
      <select
        aria-label="Job that this device works for"
        value={job ?? ''}
        onChange={({ currentTarget: { value } }) => onChange(value === '' ? undefined : jobId(value))}
      >
        <option value="">any job</option>
        {jobs.map(({ id, name }) => (
          <option key={id} value={id}>
            {name}
          </option>
        ))}
      </select>
    </label>
  )
}

/** What the address of the page asks for. */
export function askedJob(search: string): JobId | undefined {
  const asked = new URLSearchParams(search).get('job')
  return asked === null || asked === '' ? undefined : jobId(asked)
}

/** Jobs that are public; one that the page's address names is listed by its id where it is not. */
function useOpenJobs(asked: JobId | undefined): readonly ChosenJob[] {
  const [jobs, setJobs] = useState<readonly ChosenJob[]>([])
  useEffect(() => {
    const left = new AbortController()
    openJobs(left.signal).then(setJobs, () => undefined) // it lends to any job, as without a choice
    return () => left.abort()
  }, [])
  const isListed = asked === undefined || jobs.some(({ id }) => id === asked)
  return isListed ? jobs : [...jobs, { id: asked, name: asked }]
}

async function openJobs(signal: AbortSignal): Promise<readonly ChosenJob[]> {
  const pages = await allPages(async ({ limit, after }): Promise<JobList> => {
    const query = `?limit=${limit}${after === undefined ? '' : `&after=${after}`}`
    const response = await fetch(ROUTES.jobs + query, { signal })
    return response.ok ? ((await response.json()) as JobList) : { jobs: [], next: null }
  })
  const jobs = pages.flatMap((page) => page.jobs)
  return jobs.filter(({ finishedAt }) => finishedAt === null).map(({ job: { id, name } }) => ({ id, name }))
}
