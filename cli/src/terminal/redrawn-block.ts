// Lines on a terminal that are drawn again in their place.

/** Of a terminal that does not say how wide it is. */
const USUAL_COLUMNS = 80
const USUAL_ROWS = 24

export class RedrawnBlock {
  readonly #out: NodeJS.WriteStream
  #lines = 0

  constructor(out: NodeJS.WriteStream) {
    this.#out = out
  }

  /** Lines that would wrap, or scroll, are cut: the place of the block would be lost. */
  draw(lines: readonly string[]): void {
    const { columns = USUAL_COLUMNS, rows = USUAL_ROWS } = this.#out
    const shown = lines.slice(0, Math.max(1, rows - 1)).map((line) => line.slice(0, Math.max(1, columns - 1)))
    const back = this.#lines === 0 ? '' : `\x1b[${this.#lines}A`
    this.#out.write(`${back}\x1b[J${shown.join('\n')}\n`)
    this.#lines = shown.length
  }
}
