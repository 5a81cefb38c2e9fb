// Kernels whose invocations share their work through workgroup memory, as GPUs are given them, on whatever adapter this
// machine has, at sizes that meet no tile, against the reference.
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { parseModelSpec } from '@starling-grid/model'
import { buildGraph, createGpuRunner, traitsOf } from '@starling-grid/volunteer'
import { forceVariant, type Graph } from '@starling-grid/volunteer/testing'
import { openPlaces, readText } from './places.ts'
import { compareRunners, withoutProbabilities } from './single-layers.ts'

const { gpu, places } = await openPlaces()
after(() => gpu?.close())
const skip = places[0]?.skip ?? false

const TOLERANCE = 1e-5
const SAMPLES = 2

function layerAlone(input: readonly number[], layer: object): Graph {
  const spec = parseModelSpec({ input, layers: [layer] })
  return buildGraph(spec, { outputGradient: 'given', inputGradient: true })
}

/** Every call of the graph by a kernel of the family, and its results as the reference has them. */
async function compareShared(graph: Graph): Promise<void> {
  const { device, description } = gpu ?? assert.fail()
  const traits = traitsOf(device, description.software)
  const choose = forceVariant({ family: 'shared' }, traits)
  for (const call of [...graph.forward, ...graph.backward])
    assert.equal(choose(call, SAMPLES).candidate.family, 'shared', call.kernel)
  const runner = await createGpuRunner({ device, graph, readText, maxMicroBatch: SAMPLES, choose })
  await compareRunners(runner, { samples: SAMPLES, tolerance: TOLERANCE })
}

/** Each width of a tile, rows and columns past its edge and past a quad, tiles above, on and below the diagonal. */
const ATTENTION = [
  { length: 70, heads: 2, size: 5, causal: true },
  { length: 37, heads: 1, size: 32, causal: false },
  { length: 131, heads: 1, size: 42, causal: true },
  { length: 66, heads: 2, size: 64, causal: false },
  { length: 133, heads: 1, size: 100, causal: true },
] as const

for (const { length, heads, size, causal } of ATTENTION) {
  const what = `${causal ? 'causal' : 'bidirectional'}, ${length} tokens, ${heads} heads of ${size}`
  test(`attention by tiles in workgroup memory agrees with the reference: ${what}`, { skip }, () =>
    compareShared(withoutProbabilities(layerAlone([length, 3 * heads * size], { type: 'attention', heads, causal }))),
  )
}
