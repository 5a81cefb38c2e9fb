// Reads the attributes of one JSON object and refuses what is missing, of a wrong kind, or unknown.
// Every refusal begins with the place: "layer 5 `linear`".

import {
  type ErrorCode,
  GridError,
  type HintFinder,
  type Mistake,
  MistakesError,
  type Path,
  shown,
} from '@starling-grid/protocol'
import { MAX_LAYER_NAME_LENGTH } from './limits.ts'

/** Parameter names become tensor names, file entries and table rows: dotted identifiers only. */
const NAME_PATTERN = /^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*$/

/** What is wrong with a model or an optimizer, in the order of reading: for machines, and in sentences. */
export class Misreadings {
  readonly mistakes: Mistake[] = []
  /** what was probably meant; absent: no author waits for hints, and a page need not load them */
  readonly hint: HintFinder | undefined
  readonly #sentences: string[] = []

  constructor(hint?: HintFinder) {
    this.hint = hint
  }

  add(mistake: Mistake, sentence: string): void {
    this.mistakes.push(mistake)
    this.#sentences.push(sentence)
  }

  /** Runs a reader that gives up at its first mistake; `otherwise` then stands in, so that reading goes on. */
  attempt<T>(path: Path, read: () => T, otherwise: T): T {
    try {
      return read()
    } catch (error) {
      if (!(error instanceof Misfit)) throw error
      this.add({ path: error.path ?? path, ...error.mistake }, error.message)
      return otherwise
    }
  }

  /** @throws MistakesError */
  throwIfAny(code: ErrorCode = 'model-invalid'): void {
    if (this.mistakes.length > 0) throw new MistakesError(code, this.mistakes, this.#sentences.join('\n'))
  }
}

/** A mistake after which a part cannot be read further. */
export class Misfit extends GridError {
  /** whose mistake it is: "layer 3 `linear`" */
  readonly place: string
  readonly mistake: Omit<Mistake, 'path'>
  /** where that is in the JSON, when the reader knows it */
  readonly path: Path | undefined
  readonly attribute: string | undefined
  constructor(
    place: string,
    mistake: Omit<Mistake, 'path'>,
    { path, attribute }: { readonly path?: Path; readonly attribute?: string } = {},
  ) {
    const { expected, found } = mistake
    super(
      'model-invalid',
      `${place} expects ${attribute === undefined ? '' : `\`${attribute}\` to be `}${expected} and gets ${found}`,
    )
    this.place = place
    this.mistake = mistake
    this.path = path
    this.attribute = attribute
  }
}

/** Where the attributes of an object stand, and where its mistakes are kept. */
export interface FieldsPlace {
  /** for sentences: "layer 5 `linear`" */
  readonly place: string
  readonly path: Path
  readonly misread: Misreadings
}

/** Each mistake is kept and reading goes on with some value of the right kind: the caller throws at the end. */
export class Fields {
  readonly place: string
  readonly path: Path
  readonly misread: Misreadings
  readonly #values: Readonly<Record<string, unknown>>
  readonly #unread: Set<string>
  /** attributes that were asked for */
  readonly #known = new Set<string>()

  /** @throws Misfit when the value is no object */
  constructor({ place, path, misread }: FieldsPlace, value: unknown) {
    if (typeof value !== 'object' || value === null || Array.isArray(value))
      throw new Misfit(place, { expected: 'an object', found: shown(value) })
    this.place = place
    this.path = path
    this.misread = misread
    this.#values = value as Record<string, unknown>
    this.#unread = new Set(Object.keys(value))
  }

  /** The raw value, undefined when absent. */
  take(key: string): unknown {
    this.#known.add(key)
    this.#unread.delete(key)
    return Object.hasOwn(this.#values, key) ? this.#values[key] : undefined
  }

  integer(key: string, range: { min: number; max: number; otherwise?: number }): number {
    const value = this.take(key) ?? range.otherwise
    if (typeof value === 'number' && Number.isInteger(value) && value >= range.min && value <= range.max) return value
    this.#misread(key, `a whole number from ${range.min} to ${range.max}`, value)
    return range.otherwise ?? range.min
  }

  optionalInteger(key: string, range: { min: number; max: number }): number | undefined {
    return this.take(key) === undefined ? undefined : this.integer(key, range)
  }

  positive(key: string, otherwise?: number): number {
    const value = this.take(key) ?? otherwise
    if (typeof value === 'number' && Number.isFinite(value) && value > 0) return value
    this.#misread(key, 'a positive number', value)
    return otherwise ?? 1
  }

  optionalPositive(key: string): number | undefined {
    return this.take(key) === undefined ? undefined : this.positive(key)
  }

  /** A number from 0 to below 1, undefined when absent. */
  fraction(key: string): number | undefined {
    const value = this.take(key)
    if (value === undefined || (typeof value === 'number' && value >= 0 && value < 1)) return value
    this.#misread(key, 'a number from 0 to below 1', value)
    return undefined
  }

  boolean(key: string, otherwise: boolean): boolean {
    return this.optionalBoolean(key) ?? otherwise
  }

  optionalBoolean(key: string): boolean | undefined {
    const value = this.take(key)
    if (value === undefined || typeof value === 'boolean') return value
    this.#misread(key, 'true or false', value)
    return undefined
  }

  /** The attributes of an object inside this one, undefined when absent. @throws Misfit when it is no object */
  object(key: string): Fields | undefined {
    const value = this.take(key)
    if (value === undefined) return undefined
    return new Fields({ place: `${this.place} \`${key}\``, path: [...this.path, key], misread: this.misread }, value)
  }

  /** For attributes that stay away where the author left them out. */
  present<K extends string, V>(key: K, value: V | undefined): { [P in K]?: V } {
    return (value === undefined ? {} : { [key]: value }) as { [P in K]?: V }
  }

  name(key: string, otherwise?: string): string {
    const value = this.take(key) ?? otherwise
    if (typeof value === 'string' && value.length <= MAX_LAYER_NAME_LENGTH && NAME_PATTERN.test(value)) return value
    this.#misread(key, `a dotted name of at most ${MAX_LAYER_NAME_LENGTH} characters, such as "fc1"`, value)
    return otherwise ?? 'unnamed'
  }

  choice<T extends string | number>(key: string, choices: readonly [T, ...T[]], otherwise?: T): T {
    const value = this.take(key) ?? otherwise
    const found = choices.find((choice) => choice === value)
    if (found !== undefined) return found
    this.#misread(key, `one of ${choices.join(', ')}`, value, choices.map(String))
    return otherwise ?? choices[0]
  }

  /** One of the choices. @throws Misfit on anything else, where the rest cannot be read without it */
  requiredChoice(key: string, choices: readonly string[]): string {
    const value = this.take(key)
    const found = choices.find((choice) => choice === value)
    if (found !== undefined) return found
    throw this.refuse(key, `one of ${choices.join(', ')}`, value, choices)
  }

  list(key: string, maximum: number): readonly unknown[] {
    const value = this.take(key)
    if (Array.isArray(value) && value.length > 0 && value.length <= maximum) return value
    this.#misread(key, `a list of 1 to ${maximum} entries`, value)
    return []
  }

  /** A mistyped attribute would otherwise silently take its default. */
  requireAllRead(): void {
    for (const key of this.#unread) {
      const name = key.slice(0, MAX_LAYER_NAME_LENGTH)
      const absent = [...this.#known].filter((known) => !Object.hasOwn(this.#values, known))
      this.misread.add(
        { path: [...this.path, key], ...this.#mistake('a known attribute', key, absent) },
        `${this.place} has an unknown attribute \`${name}\``,
      )
    }
  }

  #misread(key: string, expected: string, value: unknown, words?: Iterable<string>): void {
    const { message, mistake } = this.refuse(key, expected, value, words)
    this.misread.add({ path: [...this.path, key], ...mistake }, message)
  }

  refuse(key: string, expected: string, value: unknown, words?: Iterable<string>): Misfit {
    return new Misfit(this.place, this.#mistake(expected, value, words), { path: [...this.path, key], attribute: key })
  }

  /** `words`: of which one may be meant */
  #mistake(expected: string, value: unknown, words?: Iterable<string>): Omit<Mistake, 'path'> {
    const hint = this.misread.hint?.(expected, value, words)
    return { expected, found: shown(value), ...(hint === undefined ? {} : { hint }) }
  }
}

export function invalid(place: string, expected: string, found: string): Misfit {
  return new Misfit(place, { expected, found })
}
