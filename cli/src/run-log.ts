// A run as lines of JSON in a file, one for each step and each validation, written as they are committed.
import { appendFileSync, mkdirSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import type { NamedMetric, StepPoint, ValidationPoint } from '@starling-grid/protocol'
import type { Watch } from './grid/watch.ts'

/** A step's loss is that of its own batch, before its update. Seconds count from the first step's commit. */
export type LogLine =
  | { readonly step: number; readonly loss: number; readonly seconds: number }
  | {
      readonly step: number
      readonly validationLoss: number
      readonly validationAccuracy: number
      readonly metrics?: readonly NamedMetric[]
      readonly seconds: number
    }

export class RunLog {
  readonly #file: string
  #startedAt: number | undefined
  #steps = 0
  #validations = 0

  /** Begins the file anew with one line about the run. */
  constructor(file: string, about: object) {
    this.#file = file
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, `${JSON.stringify(about)}\n`)
  }

  /** Appends what is new. After a rewind the steps that follow are written again: the last line of a step counts. */
  follow({ steps, validations }: Pick<Watch, 'steps' | 'validations'>): void {
    this.#steps = Math.min(this.#steps, steps.length)
    this.#validations = Math.min(this.#validations, validations.length)
    this.#startedAt ??= steps[0]?.at
    const lines = [
      ...steps.slice(this.#steps).map((point) => this.#step(point)),
      ...validations.slice(this.#validations).map((point) => this.#validation(point)),
    ]
    this.#steps = steps.length
    this.#validations = validations.length
    if (lines.length > 0) appendFileSync(this.#file, lines.map((line) => `${JSON.stringify(line)}\n`).join(''))
  }

  #step({ v, loss, at }: StepPoint): LogLine {
    return { step: v, loss: rounded(loss), seconds: this.#since(at) }
  }

  #validation({ v, loss, accuracy, metrics, at }: ValidationPoint): LogLine {
    const evaluation = { step: v, validationLoss: rounded(loss), validationAccuracy: rounded(accuracy) }
    return { ...evaluation, ...(metrics === undefined ? {} : { metrics }), seconds: this.#since(at) }
  }

  #since(at: number): number {
    return Math.round((at - (this.#startedAt ?? at)) / 100) / 10
  }
}

/** Five digits after the point: more is noise of the batch. */
function rounded(value: number): number {
  return Math.round(value * 1e5) / 1e5
}
