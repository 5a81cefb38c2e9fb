// What both charts share: the x axis and the smoothing.
import { MAX_SMOOTHING, type ViewState, X_AXES } from './view-state.ts'

export interface ChartControlsProps {
  readonly view: ViewState
  readonly onView: (view: ViewState) => void
}

export function ChartControls(props: ChartControlsProps) {
  const { view, onView } = props
  return (
    <div class="chart-controls">
      <div class="switches" role="group" aria-label="Horizontal axis">
        {X_AXES.map((x) => (
          <button type="button" key={x} aria-pressed={view.x === x} onClick={() => onView({ ...view, x })}>
            {x}
          </button>
        ))}
      </div>
      <label class="smoothing">
        Smoothing
        <input
          type="range"
          min={0}
          max={MAX_SMOOTHING}
          step={0.01}
          value={view.smoothing}
          onInput={(event) => onView({ ...view, smoothing: Number(event.currentTarget.value) })}
        />
        <output>{view.smoothing.toFixed(2)}</output>
      </label>
    </div>
  )
}
