// The Executor that every machine has. Said aloud wherever the adapter is shown: no GPU is used.

import type { ModelSpec } from '@starling-grid/model'
import { type Clock, systemClock } from '@starling-grid/protocol'
import { buildGraph } from '../graph/build.ts'
import { buildDecoder } from '../graph/decoder-graph.ts'
import type { AdapterDescription, Executor } from '../graph/executor.ts'
import { loadFrozen } from '../graph/fixed.ts'
import type { FrozenSource } from '../graph/frozen-source.ts'
import { graphExecutor } from '../graph/graph-executor.ts'
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

/** The same of a model with frozen parameters. */
export async function openReferenceExecutor(
  spec: ModelSpec,
  { maxMicroBatch, frozen }: { readonly maxMicroBatch?: number; readonly frozen?: FrozenSource | undefined } = {},
): Promise<Executor> {
  const runner = new ReferenceRunner(buildGraph(spec), maxMicroBatch)
  await loadFrozen(runner, frozen)
  return graphExecutor(runner, REFERENCE_ADAPTER)
}

/** What goes on with a text, token by token. */
export async function openReferenceDecoder(
  spec: ModelSpec,
  { context, frozen }: { readonly context: number; readonly frozen?: FrozenSource | undefined },
): Promise<TokenDecoder> {
  const graph = buildDecoder(spec, context)
  const runner = new ReferenceRunner(graph, PROMPT_TOKENS)
  await loadFrozen(runner, frozen)
  return new TokenDecoder(graph, runner)
}
