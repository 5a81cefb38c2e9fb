// What this device gives at most, and whether other volunteers see its address: readable and set before anything
// starts.
import type { VisitorLimits } from './visitor-limits.ts'

const GB = 1e9

interface LimitsFormProps {
  readonly limits: VisitorLimits
  readonly onChange: (limits: VisitorLimits) => void
}

export function LimitsForm({ limits, onChange }: LimitsFormProps) {
  const set = (change: Partial<VisitorLimits>): void => onChange({ ...limits, ...change })
  return (
    <details class="limits">
      <summary>{summary(limits)}</summary>
      <Amount term="Memory" unit="GB" value={limits.memoryBytes} onSet={(memoryBytes) => set({ memoryBytes })} />
      <Amount
        term="Upload"
        unit="GB an hour"
        value={limits.uploadBytesPerHour}
        onSet={(uploadBytesPerHour) => set({ uploadBytesPerHour })}
      />
      <Amount term="Storage" unit="GB" value={limits.diskBytes} onSet={(diskBytes) => set({ diskBytes })} />
      <label class="switch">
        <input
          type="checkbox"
          checked={limits.relaysOnly}
          onChange={(event) => set({ relaysOnly: event.currentTarget.checked })}
        />
        <span>
          Hide my network address from other volunteers, and the kind of my graphics processor: all links go through the
          coordinator, slower
        </span>
      </label>
    </details>
  )
}

interface AmountProps {
  readonly term: string
  readonly unit: string
  /** bytes */
  readonly value: number
  readonly onSet: (bytes: number) => void
}

function Amount({ term, unit, value, onSet }: AmountProps) {
  return (
    <label class="amount">
      <span>{term}</span>
      <input
        type="number"
        min="0"
        step="0.1"
        value={value / GB}
        onChange={(event) => onSet(Math.max(0, event.currentTarget.valueAsNumber || 0) * GB)}
      />
      <span>{unit}</span>
    </label>
  )
}

function summary({ memoryBytes, uploadBytesPerHour, relaysOnly }: VisitorLimits): string {
  const address = relaysOnly ? 'address hidden' : 'other volunteers see your address'
  return `Limits: ${memoryBytes / GB} GB memory, ${uploadBytesPerHour / GB} GB upload an hour; ${address}`
}
