// What a model may say, as JSON Schema for editors. The readers that check a model are asked what they read, so that
// the schema cannot say anything else.
import { readTuned } from './base-model.ts'
import { Fields, Misfit, Misreadings } from './fields.ts'
import { readLora } from './layers/causal-lm.ts'
import { MAX_LAYER_NAME_LENGTH } from './limits.ts'
import { LAYER_TYPES, readHead, readLayerOf } from './parse.ts'

type Schema = Readonly<Record<string, unknown>>

/** Answers each question as an object that lacks everything would, and notes it. */
class AskedFields extends Fields {
  readonly properties: Record<string, Schema> = {}
  readonly required: string[] = []

  constructor() {
    super({ place: 'the schema', path: [], misread: new Misreadings() }, {})
  }

  override take(key: string): unknown {
    this.properties[key] ??= LISTS_OF_LAYERS[key] ?? {}
    return undefined
  }

  override object(key: string): undefined {
    this.properties[key] = { type: 'object' }
  }

  /** Without the default: of some attributes it follows from others. */
  #note(key: string, schema: Schema, otherwise: unknown, isOptional = otherwise !== undefined): void {
    this.properties[key] = schema
    if (!isOptional) this.required.push(key)
  }

  override integer(key: string, { min, max, otherwise }: { min: number; max: number; otherwise?: number }): number {
    this.#note(key, { type: 'integer', minimum: min, maximum: max }, otherwise)
    return otherwise ?? min
  }

  override optionalInteger(key: string, { min, max }: { min: number; max: number }): undefined {
    this.#note(key, { type: 'integer', minimum: min, maximum: max }, undefined, true)
  }

  override positive(key: string, otherwise?: number): number {
    this.#note(key, { type: 'number', exclusiveMinimum: 0 }, otherwise)
    return otherwise ?? 1
  }

  override optionalPositive(key: string): undefined {
    this.#note(key, { type: 'number', exclusiveMinimum: 0 }, undefined, true)
  }

  override fraction(key: string): undefined {
    this.#note(key, { type: 'number', minimum: 0, exclusiveMaximum: 1 }, undefined, true)
  }

  override boolean(key: string, otherwise: boolean): boolean {
    this.#note(key, { type: 'boolean' }, otherwise)
    return otherwise
  }

  override optionalBoolean(key: string): undefined {
    this.#note(key, { type: 'boolean' }, undefined, true)
  }

  override name(key: string, otherwise?: string): string {
    this.#note(key, { type: 'string', maxLength: MAX_LAYER_NAME_LENGTH }, otherwise)
    return otherwise ?? 'unnamed'
  }

  override choice<T extends string | number>(key: string, choices: readonly [T, ...T[]], otherwise?: T): T {
    this.#note(key, { enum: [...choices] }, otherwise)
    return otherwise ?? choices[0]
  }

  override list(key: string, maximum: number): readonly unknown[] {
    const items = LISTS_OF_LAYERS[key]?.['items'] ?? { type: 'integer' }
    this.#note(key, { type: 'array', minItems: 1, maxItems: maximum, items }, undefined)
    return []
  }

  /** Where reading stopped at what is missing, what would follow is not known, and left open. */
  schema(read: () => unknown): Schema {
    let isWhole = true
    try {
      read()
    } catch (error) {
      if (!(error instanceof Misfit)) throw error
      isWhole = false
      if (error.attribute !== undefined) this.required.push(error.attribute)
    }
    const required = [...new Set(this.required)]
    const { properties } = this
    return {
      type: 'object',
      properties,
      ...(required.length > 0 ? { required } : {}),
      ...(isWhole ? { additionalProperties: false } : {}),
    }
  }
}

/** Names of definitions in the schema of a job. */
export const LAYER_DEFINITION = 'layer'
const LAYER: Schema = { $ref: `#/definitions/${LAYER_DEFINITION}` }
const LAYERS_OF = { type: 'array', items: LAYER, minItems: 1 } as const
const LISTS_OF_LAYERS: Readonly<Record<string, Schema>> = {
  layers: LAYERS_OF,
  shortcut: LAYERS_OF,
  branches: { type: 'array', items: LAYERS_OF },
}

/** One layer: told apart by its `type`. */
export function layerSchema(): Schema {
  return { anyOf: LAYER_TYPES.map((type) => ofType(type, (fields) => readLayerOf(type, fields))) }
}

function ofType(type: string, read: (fields: Fields) => unknown): Schema {
  const asked = new AskedFields()
  const {
    properties,
    required = [],
    ...rest
  } = asked.schema(() => read(asked)) as {
    readonly properties: Record<string, Schema>
    readonly required?: readonly string[]
  }
  return { ...rest, properties: { type: { const: type }, ...properties }, required: ['type', ...required] }
}

/** A model of layers, or an imported one that is tuned. */
export function modelSchema(): Schema {
  const [layers, tuned] = [new AskedFields(), new AskedFields()]
  const lora = new AskedFields()
  const ofLora = lora.schema(() => readLora(lora))
  const ofTuned = tuned.schema(() => readTuned(tuned))
  Object.assign(tuned.properties, { base: { type: 'string' }, lora: ofLora })
  return { anyOf: [layers.schema(() => readHead(layers, () => [])), { ...ofTuned, additionalProperties: false }] }
}
