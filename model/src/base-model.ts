// An imported model as jobs and shards name it: which rows of which tensor a shard has, and what a job tunes.

import { findHint, type HintFinder, type Sha256 } from '@starling-grid/protocol'
import { Fields, Misreadings } from './fields.ts'
import { readLora } from './layers/causal-lm.ts'
import { MAX_SIZE } from './limits.ts'
import type { FixedEntry, ParameterEntry } from './param-layout.ts'
import type { CausalLmConfig, Lora } from './spec.ts'

/** How a tensor is called in a shard. */
export function partName(name: string, row: number): string {
  return `${name}@${row}`
}

/** Rows and columns of a parameter in shards: a vector is one row. */
export function rowsOf({ shape }: Pick<FixedEntry | ParameterEntry, 'shape'>): { rows: number; columns: number } {
  const columns = shape.at(-1) ?? 1
  return { rows: shape.slice(0, -1).reduce((product, size) => product * size, 1), columns }
}

/** What a job file says of a model that was imported: its name, and what of it learns. */
export interface TunedModel {
  readonly base: string
  /** tokens of a sample */
  readonly context: number
  /** absent: the whole model learns */
  readonly lora?: Lora
}

const NAME = /^[a-z0-9][a-z0-9._-]{0,59}$/

/** Whether the `model` of a job file names an imported model in place of layers. */
export function isTuned(model: unknown): boolean {
  return typeof model === 'object' && model !== null && 'base' in model && !('layers' in model)
}

/** @throws MistakesError 'model-invalid' */
export function parseTuned(json: unknown, hint: HintFinder = findHint): TunedModel {
  const misread = new Misreadings(hint)
  const tuned = misread.attempt(
    [],
    () => readTuned(new Fields({ place: 'the model', path: [], misread }, json)),
    undefined,
  )
  misread.throwIfAny()
  if (tuned === undefined) throw new Error('internal: a model was neither read nor refused')
  return tuned
}

export function readTuned(fields: Fields): TunedModel {
  const lora = fields.take('lora') === undefined ? undefined : fields.object('lora')
  const context = fields.integer('context', { min: 2, max: MAX_SIZE })
  const base = fields.take('base')
  if (typeof base !== 'string' || !NAME.test(base))
    throw fields.refuse('base', 'the name of a model that was imported with `starling model import`', base)
  const tuned = {
    base,
    context,
    ...(lora === undefined ? {} : { lora: readLora(lora) }),
  }
  fields.requireAllRead()
  return tuned
}

/** Targets of this value count for nothing: prompts, and what fills a sample up. */
export const IGNORED = -100

/** The model that a job tunes, as JSON for parseModelSpec. `manifest`: hash of the base's */
export function tunedSpec({ base, context, lora }: TunedModel, config: CausalLmConfig, manifest: Sha256): object {
  return {
    name: base.replaceAll(/[^A-Za-z0-9_]/g, '_').replace(/^(?=[0-9])/, '_'),
    input: [context],
    layers: [{ type: 'causal_lm', config, ...(lora === undefined ? {} : { lora }) }],
    loss: 'cross_entropy',
    ignore_index: IGNORED,
    ...(lora === undefined ? {} : { base: manifest }),
  }
}
