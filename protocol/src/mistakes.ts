// What is wrong with a value from outside, all at once. Each mistake has its path, what was expected and what came, and
// the word that was probably meant. Reads the part of JSON Schema that this package's schemas use.
import { type ErrorCode, GridError } from './errors.ts'

export type Path = readonly (string | number)[]

export interface Mistake {
  /** keys and indices from the outermost value inwards; empty: the whole value */
  readonly path: Path
  readonly expected: string
  readonly found: string
  /** what to do, where something better than "write what is expected" can be said */
  readonly hint?: string
}

/** One refusal for all mistakes of a value. */
export class MistakesError extends GridError {
  readonly mistakes: readonly Mistake[]
  constructor(code: ErrorCode, mistakes: readonly Mistake[], message: string = mistakes.map(mistakeText).join('\n')) {
    super(code, message)
    this.mistakes = mistakes
  }
}

/** More would help no author, and a stranger's value must not make a long answer. */
const MAX_MISTAKES = 100
const MAX_SHOWN = 60
/** Fields that a hint lists. */
const MAX_LISTED = 12

/** `model.layers[2].out: expected a whole number from 1 to 64, got "4"; write it without quotes` */
export function mistakeText({ path, expected, found, hint }: Mistake): string {
  const where = path.length === 0 ? '' : `${pathText(path)}: `
  return `${where}expected ${expected}, got ${found}${hint === undefined ? '' : `; ${hint}`}`
}

export function pathText(path: Path): string {
  return path
    .map((key, i) => {
      if (typeof key === 'number') return `[${key}]`
      return (i === 0 ? '' : '.') + clipped(key)
    })
    .join('')
}

/** A value from outside in a message: short, on one line. */
export function shown(value: unknown): string {
  if (value === undefined) return 'nothing'
  if (typeof value === 'number' && !Number.isFinite(value)) return String(value)
  return clipped(JSON.stringify(value) ?? String(value))
}

function clipped(text: string): string {
  return text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN - 1)}…` : text
}

/** The word among `names` that was probably meant: at most a third of its characters differ. */
export function nearest(word: string, names: Iterable<string>): string | undefined {
  if (word.length > MAX_SHOWN) return undefined
  const plain = (text: string): string => text.toLowerCase().replaceAll(/[^a-z0-9]/g, '')
  const ranked = [...names]
    .map((name) => ({ name, distance: editDistance(plain(word), plain(name)) }))
    .filter(({ name, distance }) => distance <= Math.max(1, Math.floor(name.length / 3)))
    .sort((a, b) => a.distance - b.distance)
  return ranked[0]?.name
}

/** Insertions, deletions, replacements and swaps of neighbours (Damerau and Levenshtein) from one word to the other. */
function editDistance(a: string, b: string): number {
  let [before, row] = [[] as number[], Array.from({ length: b.length + 1 }, (_, j) => j)]
  for (let i = 1; i <= a.length; i++) {
    const next = [i]
    for (let j = 1; j <= b.length; j++) {
      const replaced = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1)
      const isSwap = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
      const swapped = isSwap ? (before[j - 2] ?? 0) + 1 : replaced
      next[j] = Math.min(replaced, swapped, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1)
    }
    ;[before, row] = [row, next]
  }
  return row[b.length] ?? 0
}

/** "did you mean `priority`?", or nothing */
function nearMiss(word: unknown, names: Iterable<string>): { readonly hint?: string } {
  const meant = typeof word === 'string' ? nearest(word, names) : undefined
  return meant === undefined ? {} : { hint: `did you mean \`${meant}\`?` }
}

interface NumberRule {
  readonly minimum?: number
  readonly maximum?: number
  readonly exclusiveMinimum?: number
  readonly exclusiveMaximum?: number
}

interface TextRule {
  readonly pattern?: string
  /** what a value of a pattern is, in words */
  readonly title?: string
  readonly minLength?: number
  readonly maxLength?: number
}

/** The keywords of JSON Schema that schemas of this package use. */
interface Rule extends NumberRule, TextRule {
  readonly type?: string
  readonly const?: unknown
  readonly anyOf?: readonly Rule[]
  readonly properties?: Readonly<Record<string, Rule>>
  readonly required?: readonly string[]
  readonly items?: Rule | readonly Rule[]
  readonly minItems?: number
  readonly maxItems?: number
}

/** Where a field went that older files or other programs name: path of the object and name → what to write. */
export type Renamed = Readonly<Record<string, string>>

/** Every place in which `value` differs from `schema`, at most 100. */
export function mistakesOf(schema: object, value: unknown, renamed: Renamed = {}): Mistake[] {
  const found: Mistake[] = []
  new MistakeFinder(found, renamed).look(schema as Rule, value, [])
  return found
}

class MistakeFinder {
  readonly #found: Mistake[]
  readonly #renamed: Renamed
  constructor(found: Mistake[], renamed: Renamed) {
    this.#found = found
    this.#renamed = renamed
  }

  look(rule: Rule, value: unknown, path: Path): void {
    if (rule.anyOf !== undefined) this.#union(rule.anyOf, value, path)
    else if (rule.properties !== undefined) this.#object(rule, value, path)
    else if (Array.isArray(rule.items)) this.#tuple(rule.items, value, path)
    else if (rule.items !== undefined) this.#list(rule, value, path)
    else if (!fits(rule, value)) this.#add(path, { expected: described(rule), value })
  }

  #add(path: Path, { expected, value, hint }: { expected: string; value: unknown; hint?: string }): void {
    if (this.#found.length >= MAX_MISTAKES) return
    const better = hint ?? hintFor(expected, value)
    this.#found.push({ path, expected, found: shown(value), ...(better === undefined ? {} : { hint: better }) })
  }

  #union(rules: readonly Rule[], value: unknown, path: Path): void {
    if (rules.some((rule) => fits(rule, value))) return
    const tag = tagOf(rules)
    if (tag !== undefined) return this.#tagged(rules, tag, { value, path })
    this.#add(path, { expected: described({ anyOf: rules }), value, ...nearMiss(value, rules.flatMap(wordsOf)) })
  }

  /** Objects that one field tells apart, such as the `type` of an optimizer. */
  #tagged(rules: readonly Rule[], tag: string, { value, path }: { value: unknown; path: Path }): void {
    const fields = fieldsOf(value)
    if (fields === undefined) return this.#add(path, { expected: `an object with \`${tag}\``, value })
    const words = rules.flatMap((rule) => wordsOf(rule.properties?.[tag] ?? {}))
    const named = fields.get(tag)
    const rule =
      named === undefined
        ? rules.find(({ required = [] }) => !required.includes(tag))
        : rules.find(({ properties }) => wordsOf(properties?.[tag] ?? {}).some((word) => word === named))
    const misspelt = named === undefined ? nearest(tag, fields.keys()) : undefined
    if (rule !== undefined && misspelt === undefined) return this.#object(rule, value, path)
    const hint = misspelt === undefined ? nearMiss(named, words) : { hint: `is \`${misspelt}\` meant for it?` }
    this.#add([...path, tag], { expected: `one of ${words.join(', ')}`, value: named, ...hint })
  }

  #object({ properties = {}, required = [] }: Rule, value: unknown, path: Path): void {
    const fields = fieldsOf(value)
    if (fields === undefined) return this.#add(path, { expected: 'an object', value })
    const absent = Object.keys(properties).filter((name) => !fields.has(name))
    const meant = new Set<string>()
    for (const [name, inner] of fields) {
      const rule = Object.hasOwn(properties, name) ? properties[name] : undefined
      if (rule !== undefined) this.look(rule, inner, [...path, name])
      else meant.add(this.#unknown([...path, name], name, { absent, known: Object.keys(properties) }))
    }
    for (const name of required)
      if (!fields.has(name) && !meant.has(name)) this.#missing([...path, name], properties[name] ?? {})
  }

  #missing(path: Path, rule: Rule): void {
    this.#add(path, { expected: described(rule), value: undefined })
  }

  /** The absent field that was probably meant: it need not be called missing, too. */
  #unknown(path: Path, name: string, { absent, known }: { absent: string[]; known: string[] }): string {
    const moved = Object.hasOwn(this.#renamed, pathText(path)) ? this.#renamed[pathText(path)] : undefined
    if (moved !== undefined) {
      this.#add(path, { expected: 'a known field', value: name, hint: `write \`${moved}\`` })
      return moved.split('.')[0] ?? ''
    }
    const meant = nearest(name, absent)
    const all = known.length > MAX_LISTED ? 'docs/JOBS.md lists all fields' : `known here: ${known.join(', ')}`
    const hint = meant === undefined ? all : `did you mean \`${meant}\`?`
    this.#add(path, { expected: 'a known field', value: name, hint })
    return meant ?? ''
  }

  #tuple(rules: readonly Rule[], value: unknown, path: Path): void {
    if (!Array.isArray(value) || value.length !== rules.length)
      return this.#add(path, { expected: `a list of ${rules.length} values`, value })
    for (const [i, rule] of rules.entries()) this.look(rule, value[i], [...path, i])
  }

  #list(rule: Rule, value: unknown, path: Path): void {
    const { items = {}, minItems = 0, maxItems = Infinity } = rule
    if (!Array.isArray(value) || value.length < minItems || value.length > maxItems)
      return this.#add(path, { expected: described(rule), value })
    for (const [i, item] of value.entries()) this.look(items as Rule, item, [...path, i])
  }
}

function fieldsOf(value: unknown): Map<string, unknown> | undefined {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined
  return new Map(Object.entries(value).filter(([, inner]) => inner !== undefined))
}

/** Whether the value itself is right. Objects and lists are looked at field by field, so that each mistake is found. */
function fits(rule: Rule, value: unknown): boolean {
  if (rule.anyOf !== undefined) return rule.anyOf.some((one) => fits(one, value))
  if (rule.const !== undefined) return value === rule.const
  switch (rule.type) {
    case 'string':
      return typeof value === 'string' && isText(rule, value)
    case 'boolean':
      return typeof value === 'boolean'
    case 'integer':
      return Number.isInteger(value) && isWithin(rule, Number(value))
    case 'number':
      return typeof value === 'number' && Number.isFinite(value) && isWithin(rule, value)
    default:
      return rule.properties === undefined && rule.items === undefined && value !== undefined
  }
}

function isText({ minLength = 0, maxLength = Infinity, pattern }: Rule, text: string): boolean {
  return (
    text.length >= minLength && text.length <= maxLength && (pattern === undefined || new RegExp(pattern).test(text))
  )
}

function isWithin(rule: Rule, value: number): boolean {
  const { minimum = -Infinity, maximum = Infinity, exclusiveMinimum = -Infinity, exclusiveMaximum = Infinity } = rule
  return value >= minimum && value <= maximum && value > exclusiveMinimum && value < exclusiveMaximum
}

/** What a field takes, in words: "a whole number from 1 to 4096". */
export function described(schema: object): string {
  const rule = schema as Rule
  if (rule.title !== undefined) return rule.title
  if (rule.anyOf !== undefined) {
    const tag = tagOf(rule.anyOf)
    if (tag !== undefined) return `an object with \`${tag}\``
    if (rule.anyOf.every((one) => wordsOf(one).length > 0)) return `one of ${wordsOf(rule).join(', ')}`
    return rule.anyOf.map(described).join(', or ')
  }
  if (rule.const !== undefined) return String(rule.const)
  if (Array.isArray(rule.items)) return `a list of ${rule.items.length} values`
  if (rule.items !== undefined) return `a list of ${rule.minItems ?? 0} to ${rule.maxItems ?? 'any number of'} values`
  switch (rule.type) {
    case 'string':
      return `text of ${rule.minLength ?? 0} to ${rule.maxLength ?? 'any number of'} characters`
    case 'boolean':
      return 'true or false'
    case 'integer':
      return `a whole number${rangeText(rule)}`
    case 'number':
      return `a number${rangeText(rule)}`
    default:
      return 'an object'
  }
}

function rangeText({ minimum, maximum, exclusiveMinimum, exclusiveMaximum }: Rule): string {
  const low = exclusiveMinimum === undefined ? minimum : undefined
  const from = low === undefined ? '' : ` from ${low}`
  const above = exclusiveMinimum === undefined ? '' : ` above ${exclusiveMinimum}`
  const to = maximum === undefined ? '' : ` to ${maximum}`
  const below = exclusiveMaximum === undefined ? '' : ` to below ${exclusiveMaximum}`
  return `${from}${above}${to}${below}`
}

function wordsOf({ const: word, anyOf }: Rule): string[] {
  if (anyOf !== undefined) return anyOf.flatMap(wordsOf)
  return typeof word === 'string' ? [word] : []
}

/** The field whose words tell the objects of a union apart. */
function tagOf(rules: readonly Rule[]): string | undefined {
  const [first] = rules
  return Object.keys(first?.properties ?? {}).find((name) =>
    rules.every(({ properties }) => wordsOf(properties?.[name] ?? {}).length > 0),
  )
}

/** What an author probably meant: one of these words, or the value written otherwise. */
export type HintFinder = (expected: string, value: unknown, words?: Iterable<string>) => string | undefined

export const findHint: HintFinder = (expected, value, words = []) =>
  nearMiss(value, words).hint ?? hintFor(expected, value)

/** YAML's traps: `yes` is text, and a number in quotes is no number. */
function hintFor(expected: string, value: unknown): string | undefined {
  if (typeof value !== 'string') return undefined
  if (expected === 'true or false' && /^(yes|no|on|off|y|n)$/i.test(value)) return 'write true or false'
  if (/^(a|a whole) number/.test(expected) && value.trim() !== '' && Number.isFinite(Number(value)))
    return 'write it without quotes'
  return undefined
}
