// Autotuning on a real device: trials are runners of a few calls by themselves.

import { type AdapterDescription, systemClock } from '@starling-grid/protocol'
import type { Graph } from '../graph/build.ts'
import type { VariantSelector } from '../graph/choice.ts'
import { traitsIn } from '../graph/half.ts'
import { defaultMicroBatch, planGraph } from '../graph/plan.ts'
import type { SharedVariants } from '../graph/shared-variants.ts'
import { tune, type TuningOptions } from './autotune.ts'
import { createGpuRunner, traitsOf, type GpuRunnerOptions } from './runner.ts'
import type { PrepareTrial } from './stopwatch.ts'

/** `options`: those of the runner that will use the choice. */
export function tuneOn(
  tuning: TuningOptions,
  adapter: AdapterDescription,
  { variants, ...options }: GpuRunnerOptions & { readonly variants?: SharedVariants | undefined },
): Promise<VariantSelector> {
  const { device, graph, readText, maxBytes, facts, packing, software = false, precision = 'f32' } = options
  const { maxMicroBatch = defaultMicroBatch(software) } = options
  const traits = traitsIn(precision, traitsOf(device, software, facts))
  // Shapes hold the number of samples that the adapter has room for.
  const bound = maxBytes === undefined ? {} : { maxBytes }
  const plan = planGraph(graph, { traits, limits: device.limits, maxMicroBatch, packing, precision, ...bound })
  const { capacity } = plan
  // What is measured is what will run: of a large vocabulary, its pieces.
  const cut = plan.graph.logits === undefined && plan.graph.chunks === undefined ? graph : plan.graph
  return tune(
    { ...tuning, shared: variants },
    {
      graph: cut,
      capacity,
      traits,
      adapter,
      facts,
      precision,
      readText,
      prepare: trialsOf({ ...options, graph: cut, maxMicroBatch: capacity }),
    },
  )
}

function trialsOf(options: GpuRunnerOptions): PrepareTrial {
  // a trial's results are those of its calls, in one piece
  const { logits: _logits, ...whole } = options.graph
  return async (calls, choose) => {
    const graph: Graph = {
      ...whole,
      forward: calls,
      evaluation: calls,
      loss: [],
      backward: [],
      lossTensors: undefined,
      inputGradient: undefined,
    }
    const runner = await createGpuRunner({ ...options, graph, choose })
    return {
      async run() {
        const start = systemClock.now()
        // Whatever is read: only a copy makes the end of the run something to wait for.
        const { output } = graph
        await runner.run({ samples: runner.capacity, parts: ['forward'], write: [], read: [output], glance: true })
        return systemClock.now() - start
      },
      destroy: () => runner.destroy(),
    }
  }
}
