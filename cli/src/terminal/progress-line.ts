// One line of progress on stderr: rewritten on a terminal, printed now and then in a pipe.
import { performance } from 'node:perf_hooks'

/** ms between two lines in a pipe */
const PIPE_INTERVAL_MS = 5000
const TERMINAL_INTERVAL_MS = 200

export class ProgressLine {
  readonly #out = process.stderr
  #shownAt = Number.NEGATIVE_INFINITY
  #open = false

  show(text: string): void {
    const now = performance.now()
    if (now - this.#shownAt < (this.#out.isTTY ? TERMINAL_INTERVAL_MS : PIPE_INTERVAL_MS)) return
    this.#shownAt = now
    if (!this.#out.isTTY) return void this.#out.write(`${text}\n`)
    this.#out.write(`\r\x1b[K${text.slice(0, Math.max(20, (this.#out.columns ?? 80) - 1))}`)
    this.#open = true
  }

  /** A line that stays. */
  say(text: string): void {
    if (this.#open) this.#out.write('\r\x1b[K')
    this.#open = false
    this.#out.write(`${text}\n`)
  }
}

/** "1 min 20 s" */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds))
  return whole < 60 ? `${whole} s` : `${Math.floor(whole / 60)} min ${whole % 60} s`
}
