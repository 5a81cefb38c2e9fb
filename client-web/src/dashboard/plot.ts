// uPlot, told what to draw. Independent of runs: series in, cursor position out.
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'
import type { Series } from './series.ts'
import type { ChartScale } from './view-state.ts'

export interface PlotOptions {
  readonly scale: ChartScale
  readonly formatX: (x: number) => string
  readonly formatY: (y: number) => string
  /** index of the point under the cursor, or null */
  readonly onCursor: (index: number | null) => void
}

/** CSS pixels */
const HEIGHT = 240
const NARROW = 560
const LOGARITHMIC = 3
const LINEAR = 1
const MARK_SIZE = 8

/** Without a range of its own it would reach to the next power of ten. */
const LOGARITHMIC_X: uPlot.Scale = { time: false, distr: LOGARITHMIC, range: (_, min, max) => [min, max] }

export class Plot {
  readonly #chart: uPlot
  readonly #resize: ResizeObserver
  #series: Series
  /** a user who zoomed in keeps the view until a double click; otherwise the axes follow the data */
  #zoomed = false

  constructor(element: HTMLElement, series: Series, options: PlotOptions) {
    this.#series = series
    this.#chart = new uPlot(this.#describe(element, options), dataOf(series), element)
    this.#resize = new ResizeObserver(() => this.#chart.setSize({ width: element.clientWidth, height: HEIGHT }))
    this.#resize.observe(element)
    this.#chart.over.addEventListener('dblclick', () => {
      this.#zoomed = false
    })
  }

  update(series: Series): void {
    this.#series = series
    this.#chart.setData(dataOf(series), !this.#zoomed)
    if (this.#zoomed) this.#chart.redraw()
  }

  /** Puts the cursor on a point, as the arrow keys do. */
  pointAt(index: number): void {
    const x = this.#series.x[index]
    const y = this.#series.smooth[index] ?? this.#series.raw[index]
    if (x === undefined) return
    this.#chart.setCursor({ left: this.#chart.valToPos(x, 'x'), top: this.#chart.valToPos(y ?? 0, 'y') })
  }

  destroy(): void {
    this.#resize.disconnect()
    this.#chart.destroy()
  }

  #describe(element: HTMLElement, options: PlotOptions): uPlot.Options {
    const colour = coloursOf(element)
    const { scale } = options
    return {
      width: element.clientWidth,
      height: HEIGHT,
      legend: { show: false },
      padding: [12, 12, 0, 0],
      cursor: { drag: { x: true, y: false, setScale: true }, points: { size: 7 }, y: false },
      scales: { x: scale.logX ? LOGARITHMIC_X : { time: false }, y: { distr: scale.logY ? LOGARITHMIC : LINEAR } },
      axes: [
        {
          ...axisStyle(colour),
          values: (_, ticks) => ticks.map((tick) => labelOf(tick, options.formatX)),
          size: 32,
          space: element.clientWidth < NARROW ? 64 : 80,
        },
        { ...axisStyle(colour), values: (_, ticks) => ticks.map((tick) => labelOf(tick, options.formatY)), size: 58 },
      ],
      series: [
        {},
        { stroke: colour.pale, width: 1, points: { show: false } },
        { stroke: colour.strong, width: 2.2, points: { show: false }, spanGaps: true },
        {
          stroke: colour.mark,
          width: 1.4,
          dash: [5, 4],
          spanGaps: true,
          points: { show: true, size: 7, fill: colour.mark, stroke: colour.mark },
        },
      ],
      hooks: {
        setSelect: [
          (chart) => {
            this.#zoomed ||= chart.select.width > 0
          },
        ],
        setCursor: [(chart) => options.onCursor(chart.cursor.idx ?? null)],
        draw: [(chart) => drawMissing(chart, this.#series.missing, colour.warning)],
      },
    }
  }
}

function dataOf(series: Series): uPlot.AlignedData {
  const marks = series.marks.length === 0 ? series.x.map(() => null) : series.marks
  return [[...series.x], [...series.raw], [...series.smooth], [...marks]]
}

/** Logarithmic scales leave most ticks without a label. */
function labelOf(tick: number | null, format: (value: number) => string): string {
  return tick === null ? '' : format(tick)
}

interface Colours {
  readonly pale: string
  readonly strong: string
  readonly mark: string
  readonly warning: string
  readonly text: string
  readonly grid: string
}

/** A canvas cannot read CSS variables by itself. */
function coloursOf(element: HTMLElement): Colours {
  const style = getComputedStyle(element)
  const read = (name: string): string => style.getPropertyValue(name).trim()
  return {
    pale: read('--curve-pale'),
    strong: read('--accent'),
    mark: read('--violet'),
    warning: read('--amber'),
    text: read('--soft'),
    grid: read('--line'),
  }
}

function axisStyle(colour: Colours): uPlot.Axis {
  const hair = { stroke: colour.grid, width: 1 }
  return {
    stroke: colour.text,
    font: "12px 'Inter Variable', sans-serif",
    grid: hair,
    ticks: { ...hair, size: 4 },
    gap: 6,
  }
}

/** A triangle on the x axis for each value that is not a number. */
function drawMissing(chart: uPlot, missing: readonly number[], colour: string): void {
  const { ctx, bbox } = chart
  const size = MARK_SIZE * devicePixelRatio
  const bottom = bbox.top + bbox.height
  ctx.save()
  ctx.fillStyle = colour
  for (const x of missing) {
    const left = chart.valToPos(x, 'x', true)
    if (left < bbox.left || left > bbox.left + bbox.width) continue
    ctx.beginPath()
    ctx.moveTo(left, bottom - size)
    ctx.lineTo(left - size / 2, bottom)
    ctx.lineTo(left + size / 2, bottom)
    ctx.fill()
  }
  ctx.restore()
}
