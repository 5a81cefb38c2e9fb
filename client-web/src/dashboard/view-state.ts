// How the charts are looked at: kept in the address, so that a link shows what its sender saw. Pure, but for the
// signal.

export type XAxis = 'step' | 'samples' | 'time'
export const X_AXES: readonly XAxis[] = ['step', 'samples', 'time']
export type ChartName = 'loss' | 'accuracy'

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
}

export const MAX_SMOOTHING = 0.99
const DEFAULT_SMOOTHING = 0.9
const LINEAR: ChartScale = { logX: false, logY: false }
export const DEFAULT_VIEW: ViewState = {
  job: null,
  x: 'step',
  smoothing: DEFAULT_SMOOTHING,
  charts: { loss: LINEAR, accuracy: LINEAR },
}

/** "?x=time&smoothing=0.5&loss=log-y" → view; absent fields have their defaults. */
export function parseView(search: string): ViewState {
  const query = new URLSearchParams(search)
  const smoothing = Number(query.get('smoothing') ?? DEFAULT_SMOOTHING)
  return {
    job: query.get('job'),
    x: X_AXES.find((axis) => axis === query.get('x')) ?? 'step',
    smoothing: smoothing >= 0 && smoothing <= MAX_SMOOTHING ? smoothing : DEFAULT_SMOOTHING,
    charts: { loss: parseScale(query.get('loss')), accuracy: parseScale(query.get('accuracy')) },
  }
}

/** The part of the address after the path; empty for the default view. */
export function formatView(view: ViewState): string {
  const query = new URLSearchParams(view.job === null ? {} : { job: view.job })
  if (view.x !== 'step') query.set('x', view.x)
  if (view.smoothing !== DEFAULT_SMOOTHING) query.set('smoothing', String(view.smoothing))
  for (const [chart, scale] of Object.entries(view.charts))
    if (scale.logX || scale.logY) query.set(chart, formatScale(scale))
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
