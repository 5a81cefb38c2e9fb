// Which job this tab lends itself to: any, or one that the visitor chose. `/?job=ID` chooses one from the start.
import { type JobId, jobId } from '@starling-grid/protocol'
import { type ListedJob, useJobs } from '../live/open-jobs.ts'

interface JobChoiceProps {
  /** undefined: any */
  readonly job: JobId | undefined
  readonly onChange: (job: JobId | undefined) => void
}

/** Nothing to choose where there is one job. */
export function JobChoice({ job, onChange }: JobChoiceProps) {
  const jobs = withAsked(
    useJobs().filter(({ finished }) => !finished),
    job,
  )
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

/** One that the page's address names is listed by its id where it is not public. */
function withAsked(jobs: readonly ListedJob[], asked: JobId | undefined): readonly ListedJob[] {
  const isListed = asked === undefined || jobs.some(({ id }) => id === asked)
  return isListed ? jobs : [...jobs, { id: asked, name: asked, finished: false }]
}
