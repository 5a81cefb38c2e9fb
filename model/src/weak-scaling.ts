// What `weakScaling` of a job contradicts: the mode, the most blocks of a step, and a schedule that needs an end.
import { type JobSpec, type Mistake, MOST_BATCH_BLOCKS } from '@starling-grid/protocol'

type ScaledJob = Pick<
  JobSpec,
  'weakScaling' | 'mode' | 'batchBlocks' | 'gradientAccumulation' | 'volunteers' | 'optimizer' | 'stop'
>

/** Every mistake of a job whose fields are right one by one. */
export function weakScalingMistakes(job: ScaledJob): Mistake[] {
  if (job.weakScaling === undefined) return []
  return [...modeMistakes(job), ...roomMistakes(job), ...scheduleMistakes(job)]
}

function modeMistakes({ mode }: ScaledJob): Mistake[] {
  if (mode === 'ring') return []
  const [expected, hint] = ['ring in a job with `weakScaling`', 'write ring, or leave `weakScaling` out']
  return [{ path: ['mode'], expected, found: mode, hint }]
}

function roomMistakes({ batchBlocks, gradientAccumulation = 1, volunteers }: ScaledJob): Mistake[] {
  const min = volunteers?.min ?? 1
  const blocks = batchBlocks * gradientAccumulation * min
  if (blocks <= MOST_BATCH_BLOCKS) return []
  return [
    {
      path: ['batchBlocks'],
      expected: `with weakScaling at most ${MOST_BATCH_BLOCKS} blocks in a step of the fewest volunteers`,
      found: `${blocks} of ${min}`,
      hint: 'make `blockSamples` larger and `batchBlocks` smaller',
    },
  ]
}

/** How many steps the whole training has follows from who takes part. */
function scheduleMistakes({ optimizer: { schedule }, stop }: ScaledJob): Mistake[] {
  if (schedule === undefined || schedule.steps !== undefined || stop.epochs !== undefined) return []
  return [
    {
      path: ['optimizer', 'schedule', 'steps'],
      expected: 'its end, in batches of one member, in a job with weakScaling that names no `stop.epochs`',
      found: 'nothing',
      hint: 'write it, or name `stop.epochs`',
    },
  ]
}
