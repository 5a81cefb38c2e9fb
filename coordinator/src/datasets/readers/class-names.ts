// Names of classes → their numbers. Whole numbers are classes by themselves. Other names are sorted as far as the first
// window shows them; later ones are numbered as they come.
import { datasetUnreadable } from '../samples.ts'

export interface StoredClassNames {
  readonly names: readonly string[]
  readonly form: 'open' | 'names' | 'numbers' | 'given'
}

/** Classes of a dataset: a larger table is a column of values, or of ids. */
const MAX_CLASSES = 65_536
const WHOLE = /^(0|[1-9][0-9]{0,4})$/
const CURE = 'Choose another column, or name the classes with --classes.'

export class ClassNames {
  readonly #names: string[]
  readonly #numbers: Map<string, number>
  #form: StoredClassNames['form']

  constructor({ names, form }: StoredClassNames = { names: [], form: 'open' }) {
    this.#names = [...names]
    this.#numbers = new Map(names.map((name, i) => [name, i]))
    this.#form = form
  }

  /** @throws GridError 'dataset-unreadable' naming the place */
  numberOf(name: string, where: () => string): number {
    const known = this.#numbers.get(name)
    if (known !== undefined) return known
    if (this.#form === 'given')
      throw datasetUnreadable(
        where(),
        `expected one of the classes ${this.#names.join(', ').slice(0, 200)}, got "${name}"`,
        CURE,
      )
    const number = this.#form === 'numbers' ? wholeNumber(name, where) : this.#names.length
    if (number >= MAX_CLASSES)
      throw datasetUnreadable(where(), `expected at most ${MAX_CLASSES} classes, got more`, CURE)
    this.#numbers.set(name, number)
    if (this.#form === 'numbers') while (this.#names.length <= number) this.#names.push(String(this.#names.length))
    else this.#names.push(name)
    return number
  }

  settle(): Int32Array | undefined {
    if (this.#form !== 'open') return undefined
    const before = [...this.#names]
    const areNumbers = before.every((name) => WHOLE.test(name))
    this.#form = areNumbers ? 'numbers' : 'names'
    const greatest = Math.max(-1, ...before.map(Number))
    const after = areNumbers ? Array.from({ length: greatest + 1 }, (_, i) => String(i)) : before.toSorted(byText)
    this.#names.splice(0, this.#names.length, ...after)
    this.#numbers.clear()
    for (const [i, name] of after.entries()) this.#numbers.set(name, i)
    return Int32Array.from(before, (name) => this.#numbers.get(name) ?? 0)
  }

  get names(): readonly string[] {
    return this.#names
  }

  stored(): StoredClassNames {
    return { names: this.#names, form: this.#form }
  }
}

function wholeNumber(name: string, where: () => string): number {
  if (WHOLE.test(name)) return Number(name)
  throw datasetUnreadable(where(), `expected a class that is a whole number, as those before it, got "${name}"`, CURE)
}

/** By code units: the same on every machine, whatever its language. */
function byText(a: string, b: string): number {
  if (a === b) return 0
  return a < b ? -1 : 1
}
