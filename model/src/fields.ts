// Reads the attributes of one JSON object and refuses what is missing, of a wrong kind, or unknown.
// Every refusal begins with the place: "layer 5 `linear`".

import { GridError } from '@starling-grid/protocol'
import { MAX_LAYER_NAME_LENGTH } from './limits.ts'

/** Parameter names become tensor names, file entries and table rows: dotted identifiers only. */
const NAME_PATTERN = /^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*$/

export class Fields {
  readonly place: string
  readonly #values: Readonly<Record<string, unknown>>
  readonly #unread: Set<string>

  constructor(place: string, value: unknown) {
    if (typeof value !== 'object' || value === null || Array.isArray(value))
      throw invalid(`${place} expects an object and gets ${show(value)}`)
    this.place = place
    this.#values = value as Record<string, unknown>
    this.#unread = new Set(Object.keys(value))
  }

  /** The raw value, undefined when absent. */
  take(key: string): unknown {
    this.#unread.delete(key)
    return Object.hasOwn(this.#values, key) ? this.#values[key] : undefined
  }

  integer(key: string, range: { min: number; max: number; otherwise?: number }): number {
    const value = this.take(key) ?? range.otherwise
    if (typeof value !== 'number' || !Number.isInteger(value) || value < range.min || value > range.max)
      throw this.refuse(key, `a whole number from ${range.min} to ${range.max}`, value)
    return value
  }

  optionalInteger(key: string, range: { min: number; max: number }): number | undefined {
    return this.take(key) === undefined ? undefined : this.integer(key, range)
  }

  positive(key: string, otherwise?: number): number {
    const value = this.take(key) ?? otherwise
    if (typeof value !== 'number' || !Number.isFinite(value) || value <= 0)
      throw this.refuse(key, 'a positive number', value)
    return value
  }

  optionalPositive(key: string): number | undefined {
    return this.take(key) === undefined ? undefined : this.positive(key)
  }

  /** A number from 0 to below 1, undefined when absent. */
  fraction(key: string): number | undefined {
    const value = this.take(key)
    if (value === undefined) return undefined
    if (typeof value !== 'number' || !(value >= 0 && value < 1))
      throw this.refuse(key, 'a number from 0 to below 1', value)
    return value
  }

  boolean(key: string, otherwise: boolean): boolean {
    return this.optionalBoolean(key) ?? otherwise
  }

  optionalBoolean(key: string): boolean | undefined {
    const value = this.take(key)
    if (value !== undefined && typeof value !== 'boolean') throw this.refuse(key, 'true or false', value)
    return value
  }

  /** The attributes of an object inside this one, undefined when absent. */
  object(key: string): Fields | undefined {
    const value = this.take(key)
    return value === undefined ? undefined : new Fields(`${this.place} \`${key}\``, value)
  }

  /** For attributes that stay away where the author left them out. */
  present<K extends string, V>(key: K, value: V | undefined): { [P in K]?: V } {
    return (value === undefined ? {} : { [key]: value }) as { [P in K]?: V }
  }

  name(key: string, otherwise?: string): string {
    const value = this.take(key) ?? otherwise
    if (typeof value !== 'string' || value.length > MAX_LAYER_NAME_LENGTH || !NAME_PATTERN.test(value))
      throw this.refuse(key, `a dotted name of at most ${MAX_LAYER_NAME_LENGTH} characters, such as "fc1"`, value)
    return value
  }

  choice<T extends string>(key: string, choices: readonly T[], otherwise?: T): T {
    const value = this.take(key) ?? otherwise
    const found = choices.find((choice) => choice === value)
    if (found === undefined) throw this.refuse(key, `one of ${choices.join(', ')}`, value)
    return found
  }

  list(key: string, maximum: number): readonly unknown[] {
    const value = this.take(key)
    if (!Array.isArray(value) || value.length === 0 || value.length > maximum)
      throw this.refuse(key, `a list of 1 to ${maximum} entries`, value)
    return value
  }

  /** A mistyped attribute would otherwise silently take its default. */
  requireAllRead(): void {
    const [key] = this.#unread
    if (key !== undefined)
      throw invalid(`${this.place} has an unknown attribute \`${key.slice(0, MAX_LAYER_NAME_LENGTH)}\``)
  }

  refuse(key: string, expected: string, found: unknown): GridError {
    return invalid(`${this.place} expects \`${key}\` to be ${expected} and gets ${show(found)}`)
  }
}

export function invalid(message: string): GridError {
  return new GridError('model-invalid', message)
}

/** A value from outside in a message: short, on one line. */
function show(value: unknown): string {
  if (value === undefined) return 'nothing'
  const text = JSON.stringify(value) ?? String(value)
  return text.length > 60 ? `${text.slice(0, 60)}…` : text
}
