// Values that a schema allows, and what strangers make of them. Everything is drawn from one seed, so that a failure
// replays.

/** A JSON schema, as far as the protocol uses it. */
export interface Schema {
  readonly type?: string
  readonly const?: unknown
  readonly enum?: readonly unknown[]
  readonly anyOf?: readonly Schema[]
  readonly properties?: Readonly<Record<string, Schema>>
  readonly required?: readonly string[]
  readonly items?: Schema | readonly Schema[]
  /** of a list that checks its elements itself */
  readonly each?: Schema
  readonly minItems?: number
  readonly maxItems?: number
  readonly minLength?: number
  readonly maxLength?: number
  readonly minimum?: number
  readonly maximum?: number
  readonly exclusiveMinimum?: number
  readonly exclusiveMaximum?: number
  readonly pattern?: string
}

export class Stranger {
  readonly #random: () => number

  constructor(random: () => number) {
    this.#random = random
  }

  below(n: number): number {
    return this.#random() % n
  }

  pick<T>(items: readonly T[]): T {
    const item = items[this.below(items.length)]
    if (item === undefined) throw new Error('internal: nothing to pick from')
    return item
  }

  /** What the schema allows. */
  value(schema: Schema): unknown {
    if (schema.const !== undefined) return schema.const
    if (schema.enum !== undefined) return this.pick(schema.enum)
    if (schema.anyOf !== undefined) return this.value(this.pick(schema.anyOf))
    switch (schema.type) {
      case 'object':
        return this.#object(schema)
      case 'array': {
        const { each = {}, items = each, minItems = 0, maxItems = 3 } = schema
        if (isTuple(items)) return items.map((item) => this.value(item))
        return Array.from({ length: Math.min(maxItems, minItems + this.below(4)) }, () => this.value(items))
      }
      case 'string':
        return this.#text(schema)
      case 'integer':
      case 'number':
        return this.#number(schema)
      case 'boolean':
        return this.below(2) === 0
      case 'null':
        return null
      case undefined: // anything: another gate looks at it
        return this.pick(ODD)
      default:
        throw new Error(`internal: no value for ${JSON.stringify(schema).slice(0, 200)}`)
    }
  }

  #object({ properties = {}, required = [] }: Schema): Record<string, unknown> {
    const here = Object.entries(properties).filter(([name]) => required.includes(name) || this.below(2) === 0)
    return Object.fromEntries(here.map(([name, schema]) => [name, this.value(schema)]))
  }

  #number({
    type,
    minimum = Number.NEGATIVE_INFINITY,
    exclusiveMinimum = Number.NEGATIVE_INFINITY,
    maximum = 1e6,
    exclusiveMaximum = Number.POSITIVE_INFINITY,
  }: Schema): number {
    const low = Math.max(minimum, exclusiveMinimum, -1e6)
    const high = Math.min(maximum, exclusiveMaximum)
    const few = low + this.below(4)
    const allowed = [few, few, low, high, (low + high) / 2].filter(
      (n) =>
        n >= minimum &&
        n > exclusiveMinimum &&
        n <= maximum &&
        n < exclusiveMaximum &&
        (type === 'number' || Number.isInteger(n)),
    )
    return this.pick(allowed)
  }

  #text({ pattern, minLength = 0, maxLength = 40 }: Schema): string {
    const hex = pattern?.match(/^\^\[0-9a-f\]\{(\d+)\}\$$/)?.[1]
    if (hex !== undefined) return Array.from({ length: Number(hex) }, () => this.below(16).toString(16)).join('')
    if (pattern?.includes('|v):') === true) return this.pick(['0:1', '1:2', 'v:0', '999999999:999999999'])
    if (pattern !== undefined) return 'a-job'.padEnd(minLength, '-b')
    return 'x'.repeat(Math.min(maxLength, Math.max(minLength, this.below(12))))
  }

  /** The same value with one place changed, now and then several. */
  changed(value: unknown): unknown {
    const once = this.#changedOnce(value)
    return this.below(4) === 0 ? this.#changedOnce(once) : once
  }

  #changedOnce(value: unknown): unknown {
    if (typeof value !== 'object' || value === null || this.below(5) === 0) return this.pick(ODD)
    if (Array.isArray(value)) return this.#changedList(value)
    const keys = Object.keys(value)
    const key = keys.length === 0 ? 'x' : this.pick(keys)
    const copy: Record<string, unknown> = { ...value }
    switch (this.below(4)) {
      case 0:
        delete copy[key]
        return copy
      case 1:
        return { ...copy, [this.pick(['x', 'toString', 'hasOwnProperty', 'length', '0', ''])]: this.pick(ODD) }
      default:
        return { ...copy, [key]: this.#changedOnce(copy[key]) }
    }
  }

  #changedList(list: readonly unknown[]): unknown[] {
    const rank = this.below(list.length + 1)
    const one = list[rank] ?? null
    return this.pick<() => unknown[]>(
      [
        () => list.toSpliced(rank, 1),
        () => list.toSpliced(rank, 0, one),
        () => list.with(Math.min(rank, Math.max(0, list.length - 1)), this.#changedOnce(one)),
        () => new Array<unknown>(3000).fill(one),
      ].slice(list.length === 0 ? 3 : 0),
    )()
  }

  /** The text of a value, as no honest sender writes it. */
  mangled(text: string): string {
    const at = this.below(text.length)
    switch (this.below(7)) {
      case 0:
        return text.slice(0, at)
      case 1:
        return (
          text.slice(0, at) +
          this.pick(['"', '}', ']', ',', '\u0000', '\ud800', '\\', '1e999', 'NaN', '-0', '9'.repeat(400)]) +
          text.slice(at)
        )
      case 2: // a key twice
        return text.replace('{', '{"type":"hello",')
      case 3:
        return text.replace('{', `{"${this.pick(['__proto__', 'constructor', 'prototype'])}":{"polluted":1},`)
      case 4:
        return text.replace(/\d+/, this.pick(['1e309', '-1', '1.5', '9007199254740993', '00', '0x10']))
      case 5:
        return '['.repeat(5000) + text + ']'.repeat(5000)
      default:
        return text + text
    }
  }

  /** The bytes with some of them others, or fewer, or more. */
  bent(bytes: Uint8Array): Uint8Array {
    const copy = bytes.slice()
    switch (this.below(4)) {
      case 0:
        return copy.subarray(0, this.below(copy.byteLength + 1))
      case 1: // one of the words of the header
        new DataView(copy.buffer).setUint32(
          4 * this.below(9),
          this.pick([0, 1, 0x7fffffff, 0x80000000, 0xffffffff, this.below(64)]),
          true,
        )
        return copy
      case 2:
        for (let i = 0; i <= this.below(4); i++) copy[this.below(copy.byteLength)] = this.below(256)
        return copy
      default:
        return new Uint8Array([...copy, ...Array.from({ length: 1 + this.below(9) }, () => this.below(256))])
    }
  }
}

function isTuple(items: Schema | readonly Schema[]): items is readonly Schema[] {
  return Array.isArray(items)
}

const deep = (depth: number): unknown => (depth === 0 ? 1 : [deep(depth - 1)])
const ODD: readonly unknown[] = [
  null,
  true,
  -1,
  1.5,
  -0,
  2 ** 53,
  1e300,
  -1e308,
  '',
  'x'.repeat(70_000),
  '\u202e\u0000',
  '<script>',
  [],
  {},
  [[]],
  { length: 1e9 },
  deep(200),
  'ff'.repeat(32),
  '0:1',
  '9'.repeat(30),
]
