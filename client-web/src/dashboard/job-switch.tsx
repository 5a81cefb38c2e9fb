// Which job the dashboard shows, where there are several. The choice is an address, so that it can be sent.
import type { JobId } from '@starling-grid/protocol'
import { useJobs } from '../live/open-jobs.ts'

interface JobSwitchProps {
  readonly shown: JobId
  readonly token: string | undefined
}

export function JobSwitch({ shown, token }: JobSwitchProps) {
  const jobs = useJobs(token)
  if (jobs.length < 2) return null
  return (
    <label class="job-switch soft">
      Job{' '}
      <select value={shown} onChange={({ currentTarget: { value } }) => location.assign(addressOf(value))}>
        {jobs.map(({ id, name, finished }) => (
          <option key={id} value={id}>
            {finished ? `${name} (finished)` : name}
          </option>
        ))}
      </select>
    </label>
  )
}

/** The same view of another job. */
function addressOf(job: string): string {
  const query = new URLSearchParams(location.search)
  query.set('job', job)
  return `?${query}`
}
