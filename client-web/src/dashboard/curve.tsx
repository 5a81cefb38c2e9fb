// One chart: its switches, the plot, what the cursor points at, and the same as a table.
import type { ComponentChildren } from 'preact'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { count, duration, plural } from '../format.ts'
import type { PageHistory } from '../live/run-history.ts'
import { CurveTable } from './curve-table.tsx'
import { metricsShown } from './metric.ts'
import { Plot } from './plot.ts'
import { type Series, type SeriesInput, seriesOf } from './series.ts'
import { type ChartName, type ChartScale, type ViewState, withScale, type XAxis } from './view-state.ts'

export interface CurveProps {
  readonly chart: ChartName
  readonly title: string
  readonly history: PageHistory
  /** of a step; absent: only validations measure it */
  readonly value?: SeriesInput['value']
  /** of a validation; absent: the chart has none */
  readonly mark?: SeriesInput['mark'] | undefined
  readonly format: (y: number) => string
  readonly view: ViewState
  readonly onView: (view: ViewState) => void
  /** switches of its own */
  readonly children?: ComponentChildren
}

const DARK = '(prefers-color-scheme: dark)'

export function Curve(props: CurveProps) {
  const { chart, title, view, history } = props
  const scale = view.charts[chart]
  const series = useSeries(props, scale)
  const [cursor, setCursor] = useState<number | null>(null)
  const set = (change: Partial<ChartScale>): void => props.onView(withScale(view, chart, change))
  return (
    <section class="curve" aria-label={title}>
      <header>
        <h2>{title}</h2>
        {props.children}
        <div class="switches" role="group" aria-label={`Scales of ${title}`}>
          <Switch on={scale.logY} toggle={() => set({ logY: !scale.logY })}>
            log y
          </Switch>
          <Switch on={scale.logX} toggle={() => set({ logX: !scale.logX })}>
            log x
          </Switch>
        </div>
      </header>
      <Readout {...props} series={series} at={cursor} axis={view.x} />
      <PlotArea series={series} scale={scale} axis={view.x} format={props.format} title={title} onCursor={setCursor} />
      <Caveats series={series} />
      <CurveTable
        title={title}
        steps={history.steps}
        validations={props.mark === undefined ? [] : history.validations}
        value={props.value}
        mark={props.mark}
        metrics={history.run === null ? [] : metricsShown(history.run.job)}
        format={props.format}
      />
    </section>
  )
}

function useSeries(props: CurveProps, scale: ChartScale): Series {
  const { history, view, value, mark = () => Number.NaN } = props
  const isValidated = props.mark !== undefined
  return useMemo(() => {
    const validations = isValidated ? history.validations : []
    const startedAt = history.run?.startedAt ?? history.steps[0]?.at ?? 0
    return seriesOf(
      { steps: history.steps, value, validations, mark, startedAt },
      { x: view.x, smoothing: view.smoothing, scale },
    )
  }, [history.steps, history.validations, view.x, view.smoothing, scale.logX, scale.logY, props.title])
}

function Switch(props: { readonly on: boolean; readonly toggle: () => void; readonly children: ComponentChildren }) {
  return (
    <button type="button" aria-pressed={props.on} onClick={props.toggle}>
      {props.children}
    </button>
  )
}

interface PlotAreaProps {
  readonly series: Series
  readonly scale: ChartScale
  readonly axis: XAxis
  readonly title: string
  readonly format: (y: number) => string
  readonly onCursor: (index: number | null) => void
}

function PlotArea(props: PlotAreaProps) {
  const { series, scale, axis, format, onCursor } = props
  const element = useRef<HTMLDivElement>(null)
  const plot = useRef<Plot>(undefined)
  const dark = useMedia(DARK)
  const cursor = useRef(0)
  useEffect(() => {
    if (element.current === null) return undefined
    const onPoint = (index: number | null): void => {
      cursor.current = index ?? cursor.current
      onCursor(index)
    }
    const made = new Plot(element.current, series, {
      scale,
      formatX: formatterOf(axis),
      formatY: format,
      onCursor: onPoint,
    })
    plot.current = made
    return () => made.destroy()
  }, [scale.logX, scale.logY, axis, dark])
  useEffect(() => plot.current?.update(series), [series])
  const move = (event: KeyboardEvent): void => {
    const next = moved(event.key, cursor.current, series.x.length)
    if (next === undefined) return
    event.preventDefault()
    plot.current?.pointAt(next)
  }
  const label =
    `${props.title}: ${plural(series.x.length, 'point')}. Arrow keys move through them; ` +
    'the table below has the numbers.'
  return <div ref={element} class="plot" tabIndex={0} role="img" aria-label={label} onKeyDown={move} />
}

function moved(key: string, from: number, length: number): number | undefined {
  const stride = Math.max(1, Math.round(length / 100))
  const to = { ArrowLeft: from - stride, ArrowRight: from + stride, Home: 0, End: length - 1 }[key]
  return to === undefined ? undefined : Math.min(length - 1, Math.max(0, to))
}

function useMedia(query: string): boolean {
  const [matches, setMatches] = useState(() => matchMedia(query).matches)
  useEffect(() => {
    const list = matchMedia(query)
    const changed = (): void => setMatches(list.matches)
    list.addEventListener('change', changed)
    return () => list.removeEventListener('change', changed)
  }, [query])
  return matches
}

function formatterOf(axis: XAxis): (x: number) => string {
  return axis === 'time' ? duration : count
}

interface ReadoutProps extends Pick<CurveProps, 'value' | 'mark' | 'format'> {
  readonly series: Series
  readonly at: number | null
  readonly axis: XAxis
}

/** What the cursor points at, or the newest point. */
function Readout(props: ReadoutProps) {
  const { series, format } = props
  const index = props.at !== null && props.at < series.x.length ? props.at : series.x.length - 1
  const x = series.x[index]
  if (x === undefined)
    return (
      <p class="readout">{props.value === undefined ? 'No version is validated yet.' : 'No step is committed yet.'}</p>
    )
  const value = (found: number | null | undefined): string =>
    found === null || found === undefined ? 'not a number' : format(found)
  const mark = series.marks.slice(0, index + 1).findLast((found) => found !== null)
  return (
    <p class="readout">
      <span>{`${props.axis} ${formatterOf(props.axis)(x)}`}</span>
      {props.value !== undefined && (
        <>
          <span class="key smooth">smoothed {value(series.smooth[index])}</span>
          <span class="key raw">raw {value(series.raw[index])}</span>
        </>
      )}
      {props.mark !== undefined && (
        <span class="key mark">validated {mark === undefined || mark === null ? 'not yet' : format(mark)}</span>
      )}
    </p>
  )
}

function Caveats(props: { readonly series: Series }) {
  const { missing, hidden } = props.series
  if (missing.length === 0 && hidden === 0) return null
  return (
    <p class="caveat">
      {missing.length > 0 && (
        <span>{plural(missing.length, 'step')} without a finite value, marked ▲ on the axis. </span>
      )}
      {hidden > 0 && <span>{plural(hidden, 'point')} at or below zero not shown on a logarithmic scale.</span>}
    </p>
  )
}
