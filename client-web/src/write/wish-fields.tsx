// How the next token is chosen, as a visitor wishes it.
import type { WritingOptions } from '@starling-grid/model/text'

/** As typed; empty: no bound. */
export interface Wishes {
  readonly temperature: string
  readonly topK: string
  readonly topP: string
  readonly tokens: string
  readonly seed: string
}

export const DEFAULT_WISHES: Wishes = { temperature: '0.8', topK: '', topP: '', tokens: '200', seed: '1337' }

interface WishField {
  readonly name: keyof Wishes
  readonly label: string
  readonly hint: string
  readonly min: number
  readonly max: number
  readonly step: number | 'any'
}

/** A text of more tokens is a matter of the command line. */
const MOST_TOKENS = 4096

const FIELDS: readonly WishField[] = [
  { name: 'temperature', label: 'Temperature', hint: '0: always the most likely', min: 0, max: 10, step: 'any' },
  { name: 'topK', label: 'Top-k', hint: 'of the most likely so many', min: 1, max: 1e6, step: 1 },
  { name: 'topP', label: 'Top-p', hint: 'of this part of the probability', min: 0.001, max: 1, step: 'any' },
  { name: 'tokens', label: 'Tokens', hint: 'at most', min: 1, max: MOST_TOKENS, step: 1 },
  { name: 'seed', label: 'Seed', hint: 'the same text again', min: 0, max: 2 ** 32 - 1, step: 1 },
]

/** Undefined: a field holds no number that is possible there. */
export function readWishes(wishes: Wishes): WritingOptions | undefined {
  const read = FIELDS.map((field) => [field.name, numberIn(field, wishes[field.name])] as const)
  if (read.some(([, value]) => value !== undefined && Number.isNaN(value))) return undefined
  return Object.fromEntries(read.filter(([, value]) => value !== undefined))
}

function numberIn({ min, max, step }: WishField, text: string): number | undefined {
  if (text.trim() === '') return undefined
  const value = Number(text)
  return value >= min && value <= max && (step === 'any' || Number.isInteger(value)) ? value : NaN
}

interface WishFieldsProps {
  readonly wishes: Wishes
  readonly onWishes: (wishes: Wishes) => void
}

export function WishFields({ wishes, onWishes }: WishFieldsProps) {
  return (
    <details class="wishes">
      <summary>How it chooses</summary>
      <div>
        {FIELDS.map(({ name, label, hint, min, max, step }) => (
          <label key={name}>
            <span>{label}</span>
            <input
              type="number"
              inputMode="decimal"
              min={min}
              max={max}
              step={step}
              value={wishes[name]}
              onInput={({ currentTarget }) => onWishes({ ...wishes, [name]: currentTarget.value })}
            />
            <small>{hint}</small>
          </label>
        ))}
      </div>
    </details>
  )
}
