// A chart's numbers as a table, for those who do not see the chart, and as a file with every point.
import type { StepPoint, ValidationPoint } from '@starling-grid/protocol'
import { useState } from 'preact/hooks'
import { count } from '../format.ts'
import { csvOf } from './csv.ts'
import type { ChartMetric } from './metric.ts'

/** Rows on the page; the file has all of them. */
const MOST_ROWS = 60

export interface CurveTableProps {
  readonly title: string
  readonly steps: readonly StepPoint[]
  readonly validations: readonly ValidationPoint[]
  /** absent: only validations measure it */
  readonly value?: ((point: StepPoint) => number) | undefined
  readonly mark?: ((point: ValidationPoint) => number) | undefined
  /** of the job, for the file */
  readonly metrics: readonly ChartMetric[]
  readonly format: (y: number) => string
}

export function CurveTable(props: CurveTableProps) {
  const [open, setOpen] = useState(false)
  return (
    <details class="curve-table" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>As a table</summary>
      {open && <Rows {...props} />}
    </details>
  )
}

function Rows(props: CurveTableProps) {
  const { validations, value, mark = () => Number.NaN, format, title } = props
  const validated = new Set(validations.map(({ v }) => v))
  const steps = value === undefined ? props.steps.filter(({ v }) => validated.has(v)) : props.steps
  const stride = Math.max(1, Math.ceil(steps.length / MOST_ROWS))
  const rows = steps.filter((_, i) => (steps.length - 1 - i) % stride === 0).reverse()
  const show = (number: number): string => (Number.isFinite(number) ? format(number) : 'not a number')
  const newest = (point: StepPoint): string => {
    const found = validations.findLast((validation) => validation.v <= point.v)
    return found === undefined ? 'not yet' : show(mark(found))
  }
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={`${title}, table`}>
      <p>
        {stride > 1 ? `Every ${stride}th step, newest first. ` : 'Newest first. '}
        <button type="button" class="quiet" onClick={() => saveCsv(props)}>
          Save all as CSV
        </button>
      </p>
      <table>
        <thead>
          <tr>
            <th scope="col">Step</th>
            {value !== undefined && <th scope="col">{title}</th>}
            {validations.length > 0 && <th scope="col">Validated</th>}
            <th scope="col">Samples</th>
            <th scope="col">Mode</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((point) => (
            <tr key={point.v}>
              <th scope="row">{count(point.v)}</th>
              {value !== undefined && <td>{show(value(point))}</td>}
              {validations.length > 0 && <td>{newest(point)}</td>}
              <td>{count(point.samples)}</td>
              <td>{point.mode}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}

function saveCsv(props: CurveTableProps): void {
  const url = URL.createObjectURL(new Blob([csvOf(props)], { type: 'text/csv' }))
  const link = document.createElement('a')
  link.href = url
  link.download = 'starling-run.csv'
  link.click()
  URL.revokeObjectURL(url)
}
