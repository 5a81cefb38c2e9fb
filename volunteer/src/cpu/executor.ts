// The Executor that every machine has. Said aloud wherever the adapter is shown: no GPU is used.

import type { ModelSpec } from '@starling-grid/model'
import { type Clock, systemClock } from '@starling-grid/protocol'
import { heldBytes, savingsText } from '../graph/attempts.ts'
import { buildGraph, type Graph } from '../graph/build.ts'
import { buildDecoder } from '../graph/decoder-graph.ts'
import type { AdapterDescription, Executor } from '../graph/executor.ts'
import { loadFrozen, packingOf } from '../graph/fixed.ts'
import type { FrozenSource } from '../graph/frozen-source.ts'
import { graphExecutor } from '../graph/graph-executor.ts'
import { packFrozen } from '../graph/packed.ts'
import { PROMPT_TOKENS, TokenDecoder } from '../graph/token-decoder.ts'
import { ReferenceRunner } from './runner.ts'

export const REFERENCE_ADAPTER: AdapterDescription = {
  name: 'plain TypeScript on the CPU',
  vendor: 'starling',
  software: true,
  executor: 'reference',
}

/** @example const executor = createReferenceExecutor(lenet5()) */
export function createReferenceExecutor(
  spec: ModelSpec,
  { maxMicroBatch, clock = systemClock }: { readonly maxMicroBatch?: number; readonly clock?: Clock } = {},
): Executor {
  return graphExecutor(new ReferenceRunner(buildGraph(spec), maxMicroBatch, clock), REFERENCE_ADAPTER)
}

export interface ReferenceOptions {
  readonly maxMicroBatch?: number
  /** of models with frozen parameters: where these come from */
  readonly frozen?: FrozenSource | undefined
  /** frozen matrices stay packed although there is room for f32; absent: where the memory does not suffice otherwise */
  readonly pack?: boolean
  /** of this process's memory, as its owner allows */
  readonly maxBytes?: number
  /** told what people should know: that memory is short */
  readonly say?: (text: string) => void
}

/** The same of a model with frozen parameters. */
export async function openReferenceExecutor(spec: ModelSpec, options: ReferenceOptions = {}): Promise<Executor> {
  const runner = new ReferenceRunner(fitting(buildGraph(spec), options), options.maxMicroBatch)
  await loadFrozen(runner, options.frozen)
  return graphExecutor(runner, REFERENCE_ADAPTER)
}

/** What goes on with a text, token by token. */
export async function openReferenceDecoder(
  spec: ModelSpec,
  { context, ...options }: Omit<ReferenceOptions, 'maxMicroBatch'> & { readonly context: number },
): Promise<TokenDecoder> {
  const graph = buildDecoder(spec, context)
  const runner = new ReferenceRunner(fitting(graph, options), PROMPT_TOKENS)
  await loadFrozen(runner, options.frozen)
  return new TokenDecoder(graph, runner)
}

/** There is no plan here: what the parameters take decides. */
function fitting(graph: Graph, { frozen, pack, maxBytes = Infinity, say = () => undefined }: ReferenceOptions): Graph {
  const packing = packingOf(frozen, pack)
  if (packing === undefined || (packing.always !== true && heldBytes(graph) <= maxBytes)) return graph
  const packed = packFrozen(graph, packing.storage)
  const saved = savingsText({ recomputed: false, graph: packed }, { packing })
  if (saved !== undefined) say(saved)
  return packed
}
