// Predictions as people and programs read them.
import type { Prediction } from '@starling-grid/client'
import { plainText } from '@starling-grid/protocol'
import Papa from 'papaparse'

/** Characters of the bar of a probability of 1. */
const BAR_WIDTH = 30
/** Significant digits of a value: what f32 has. */
const DIGITS = 6
/** Decimals of a probability in files. */
const DECIMALS = 6

export interface Answered {
  /** what was asked: a file, a file and its row, a row */
  readonly input: string
  readonly prediction: Prediction
}

/** The input, and its best answers below it with bars. */
export function answerLines({ input, prediction: { kind, answers } }: Answered, max: number): string[] {
  const shown = kind === 'classes' ? answers.slice(0, max) : answers
  const names = shown.map(({ name }) => plainText(name))
  const width = Math.max(...names.map((name) => name.length))
  const lines = shown.map(({ value }, i) => {
    const name = (names[i] ?? '').padEnd(width)
    return kind === 'values'
      ? `  ${name}  ${valueText(value)}`
      : `  ${name}  ${percent(value)}  ${bar(value)}`.trimEnd()
  })
  return [plainText(input), ...lines]
}

/** A JSON value of one line. */
export function answerJson({ input, prediction: { kind, answers } }: Answered, max: number): string {
  const shown = kind === 'classes' ? answers.slice(0, max) : answers
  const entries = shown.map(({ name, value }) =>
    kind === 'classes' ? { class: name, probability: rounded(value) } : { name, [unitOf(kind)]: valueOf(kind, value) },
  )
  return JSON.stringify({ input, [kind]: entries })
}

/** What stands above the rows of a table. */
export function csvHeader({ kind, answers }: Prediction): string {
  return csv(kind === 'classes' ? ['input', 'class', 'probability'] : ['input', ...answers.map(({ name }) => name)])
}

export function csvRow({ input, prediction: { kind, answers } }: Answered): string {
  const [best] = answers
  if (kind === 'classes') return csv([input, best?.name ?? '', rounded(best?.value ?? 0)])
  return csv([input, ...answers.map(({ value }) => valueOf(kind, value))])
}

function csv(cells: readonly (string | number)[]): string {
  return Papa.unparse([[...cells]], { escapeFormulae: false })
}

function unitOf(kind: 'labels' | 'values'): string {
  return kind === 'labels' ? 'probability' : 'value'
}

function valueOf(kind: Prediction['kind'], value: number): number {
  return kind === 'values' ? Number(valueText(value)) : rounded(value)
}

function rounded(probability: number): number {
  return Number(probability.toFixed(DECIMALS))
}

function valueText(value: number): string {
  return String(Number(value.toPrecision(DIGITS)))
}

function percent(probability: number): string {
  return `${(100 * probability).toFixed(1).padStart(5)} %`
}

function bar(probability: number): string {
  return '█'.repeat(Math.round(BAR_WIDTH * probability))
}
