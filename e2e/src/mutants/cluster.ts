// Mutants of what looks after jobs of a cluster, and of what makes a repeated submission one job.
import { type Mutant, mutantsOf } from './mutant.ts'

const CLUSTER = 'cluster'

export const OF_A_CLUSTER: readonly Mutant[] = [
  ...mutantsOf(
    CLUSTER,
    'cli/src/operator/reconcile.ts',
    ['cli/test/reconcile'],
    [
      [
        'a job that the coordinator lost is trained anew',
        '&& status.jobId === undefined && !isRefused(job))',
        '&& !isRefused(job))',
      ],
      [
        'a refused job is sent again and again',
        "status.phase === 'Failed' && status.observedGeneration === metadata.generation",
        'false',
      ],
      ['an object goes before its job is told to end', "if (status.phase !== 'Stopping') return", 'if (false) return'],
      [
        'a job that another paused is resumed',
        'if (wanted === undefined || wanted === paused',
        'if ((wanted ?? false) === paused',
      ],
      [
        'a deleted job is forgotten while the coordinator is away',
        "    case 'unknown':\n      return undefined",
        "    case 'unknown':",
      ],
      [
        'a condition forgets since when it holds',
        'old?.status === finding.status ? old.lastTransitionTime : now',
        'now',
      ],
    ],
  ),
  ...mutantsOf(
    CLUSTER,
    'cli/src/operator/replicas.ts',
    ['cli/test/reconcile'],
    [
      ['jobs that ended keep volunteers', "phase !== 'finished' && !paused", '!paused'],
      ['more volunteers are asked for than are allowed', 'Math.min(wanted, most)', 'wanted'],
    ],
  ),
  ...mutantsOf(
    CLUSTER,
    'coordinator/src/api/references.ts',
    ['coordinator/test/a-repeated-submission'],
    [
      [
        'two submissions at once are two jobs',
        'const before = this.#underWay.get(key)',
        'const before = new Map<string, Promise<unknown>>().get(key)',
      ],
      [
        'another job is answered as the same',
        'if (run === undefined || isDeepStrictEqual(run.job.submitted, spec)) return run',
        'return run',
      ],
    ],
  ),
  ...mutantsOf(
    CLUSTER,
    'coordinator/src/datasets/readers/idx-header.ts',
    ['coordinator/test/idx-files'],
    [
      ['whatever begins otherwise is an IDX file', 'magic.readUInt16BE(0) === 0', 'true'],
      ['sizes are read the smallest byte first', 'lengths.readUInt32BE(', 'lengths.readUInt32LE('],
    ],
  ),
]
