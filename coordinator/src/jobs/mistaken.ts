// A mistake in a job's fields that only the coordinator finds, with its path: a command that has the file names the
// line.
import { type Mistake, MistakesError, type Path } from '@starling-grid/protocol'

export function mistaken(path: Path, mistake: Omit<Mistake, 'path'>): MistakesError {
  return new MistakesError('job-invalid', [{ path, ...mistake }])
}
