// Memory for activations on this adapter, against the least that the live values of a step can take. Counted, not
// timed.
import { openGpu } from '@starling-grid/client-node'
import { lenet5, mlp, type ModelSpec, resnet } from '@starling-grid/model'
import { buildGraph, explainPlan, planGraph, traitsOf } from '@starling-grid/volunteer'
import { type BenchRow, rounded } from './row.ts'
import type { SuiteOptions } from './suite.ts'

const SAMPLES = 64
const MEGABYTE = 1e6
/** Activations are to take at most a quarter more than the live values alone. */
const REACH = 1 / 1.25
const MODELS: Readonly<Record<string, () => ModelSpec>> = {
  lenet5: () => lenet5(),
  mlp: () => mlp({ input: [1, 28, 28], hidden: [512, 512], classes: 10 }),
  resnet20: () => resnet(),
}

export async function memoryRows({ adapter, log }: SuiteOptions): Promise<BenchRow[]> {
  const gpu = await openGpu({ adapter })
  try {
    log('activation memory')
    return Object.entries(MODELS).map(([name, spec]) => memoryRow(name, spec(), gpu))
  } finally {
    gpu.close()
  }
}

function memoryRow(
  name: string,
  spec: ModelSpec,
  { device, description }: Awaited<ReturnType<typeof openGpu>>,
): BenchRow {
  const traits = traitsOf(device, description.software)
  const plan = planGraph(buildGraph(spec), { traits, limits: device.limits, maxMicroBatch: SAMPLES })
  const { activationBytes, peakLiveBytes, leastTensorBytes } = explainPlan(plan, {
    samples: plan.capacity,
    traits,
  }).totals
  const ours = rounded(activationBytes / MEGABYTE)
  return {
    name: `activation memory ${name} b${plan.capacity}`,
    adapter: description.name,
    unit: 'MB',
    better: 'less',
    ours,
    min: ours,
    max: ours,
    peers: {
      'live values with scratch': rounded(peakLiveBytes / MEGABYTE),
      'live values alone': rounded(leastTensorBytes / MEGABYTE),
    },
    ratio: {
      'live values with scratch': rounded(peakLiveBytes / activationBytes),
      'live values alone': rounded(leastTensorBytes / activationBytes),
    },
    reach: { peer: 'live values alone', ratio: REACH },
  }
}
