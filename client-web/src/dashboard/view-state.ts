// How the charts are looked at: kept in the address, so that a link shows what its sender saw. Pure, but for the
// signal.

import { type Metric, METRICS } from '@starling-grid/protocol'

export type XAxis = 'step' | 'samples' | 'time'
export const X_AXES: readonly XAxis[] = ['step', 'samples', 'time']
export type ChartName = 'loss' | 'metric'

export interface ChartScale {
  readonly logX: boolean
  readonly logY: boolean
}
export interface ViewState {
  /** the job that is shown; null: the newest */
  readonly job: string | null
  readonly x: XAxis
  /** 0: none, up to MAX_SMOOTHING */
  readonly smoothing: number
  readonly charts: Readonly<Record<ChartName, ChartScale>>
  /** that the second chart shows; null: the job's own */
  readonly metric: Metric | null
}

export const MAX_SMOOTHING = 0.99
const DEFAULT_SMOOTHING = 0.9
const METRIC_NAMES = Object.keys(METRICS) as Metric[]
const LINEAR: ChartScale = { logX: false, logY: false }
export const DEFAULT_VIEW: ViewState = {
  job: null,
  x: 'step',
  smoothing: DEFAULT_SMOOTHING,
  charts: { loss: LINEAR, metric: LINEAR },
  metric: null,
}

/** "?x=time&smoothing=0.5&loss=log-y" → view; absent fields have their defaults. */
export function parseView(search: string): ViewState {
  const query = new URLSearchParams(search)
  const smoothing = Number(query.get('smoothing') ?? DEFAULT_SMOOTHING)
  return {
    job: query.get('job'),
    x: X_AXES.find((axis) => axis === query.get('x')) ?? 'step',
    smoothing: smoothing >= 0 && smoothing <= MAX_SMOOTHING ? smoothing : DEFAULT_SMOOTHING,
    charts: { loss: parseScale(query.get('loss')), metric: parseScale(query.get('metric')) },
    metric: METRIC_NAMES.find((metric) => metric === query.get('show')) ?? null,
  }
}

/** The part of the address after the path; empty for the default view. */
export function formatView(view: ViewState): string {
  const query = new URLSearchParams(view.job === null ? {} : { job: view.job })
  if (view.x !== 'step') query.set('x', view.x)
  if (view.smoothing !== DEFAULT_SMOOTHING) query.set('smoothing', String(view.smoothing))
  for (const [chart, scale] of Object.entries(view.charts))
    if (scale.logX || scale.logY) query.set(chart, formatScale(scale))
  if (view.metric !== null) query.set('show', view.metric)
  const text = query.toString()
  return text === '' ? '' : `?${text}`
}

export function withScale(view: ViewState, chart: ChartName, scale: Partial<ChartScale>): ViewState {
  return { ...view, charts: { ...view.charts, [chart]: { ...view.charts[chart], ...scale } } }
}

function parseScale(text: string | null): ChartScale {
  const words = (text ?? '').split(' ')
  return { logX: words.includes('log-x'), logY: words.includes('log-y') }
}

function formatScale(scale: ChartScale): string {
  return [scale.logX ? 'log-x' : '', scale.logY ? 'log-y' : ''].filter((word) => word !== '').join(' ')
}
