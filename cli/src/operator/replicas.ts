// How many headless volunteers the cluster runs: those that the coordinator's open jobs have work for, between the sum
// of their minima and what the operator may ask for. The coordinator's scheduler divides them. Pure.
import { volunteersWanted } from '@starling-grid/coordinator'
import type { RunView } from '@starling-grid/protocol'

export interface ReplicaDecision {
  readonly replicas: number
  readonly reason: string
}

/** Jobs from elsewhere count, too: the volunteers are of the coordinator, and not of a TrainingJob. */
export function replicasFor(runs: readonly RunView[], most: number): ReplicaDecision {
  const open = runs.filter(({ phase, paused }) => phase !== 'finished' && !paused)
  const wanted = volunteersWanted(open.map(({ job }) => ({ spec: specOf(job), paused: false })))
  const least = open.reduce((sum, { job }) => sum + job.volunteers.min, 0)
  const replicas = Math.min(wanted, most)
  const jobs = `${open.length} open ${open.length === 1 ? 'job has' : 'jobs have'} work for ${wanted} volunteers`
  if (replicas === wanted) return { replicas, reason: jobs }
  const short = replicas < least ? `, and needs ${least} to start all` : ''
  return { replicas, reason: `${jobs}; at most ${most} are asked for${short}` }
}

function specOf({ batchBlocks, weakScaling, volunteers: { min, max } }: RunView['job']) {
  return { batchBlocks, ...(weakScaling ? { weakScaling } : {}), volunteers: { min, ...(max === null ? {} : { max }) } }
}
