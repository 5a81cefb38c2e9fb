// A volunteer on a terminal: a line for every change of phase until the work runs, then one line that rewrites itself.
// In a pipe it prints one line every ten seconds.
import { adapterLabel } from '@starling-grid/client-node'
import type { ExecutorKind } from '@starling-grid/protocol'
import type { VolunteerStatus } from '@starling-grid/volunteer'
import { colorsFor, type Colors } from './colors.ts'

/** ms between two lines in a pipe */
const PIPE_INTERVAL_MS = 10_000
const WORKING = new Set<VolunteerStatus['phase']>(['computing', 'exchanging', 'validating'])
/** how the reason begins for which a volunteer left a job */
const LEFT_JOB = 'waits for another job'

/** Said beside the name of what computes. */
const NO_GPU: Readonly<Record<ExecutorKind, string>> = {
  webgpu: '',
  wasm: ', no GPU',
  reference: ' (plain TypeScript, no GPU)',
}

export class TerminalStatus {
  readonly #out: NodeJS.WriteStream
  readonly #colors: Colors
  #said = new Set<string>()
  #rewriting = false
  #printedAt = 0
  #connecting = ''

  constructor(out: NodeJS.WriteStream) {
    this.#out = out
    this.#colors = colorsFor(out)
  }

  show(status: VolunteerStatus): void {
    this.#introduce(status)
    if (status.phase === 'connecting') return this.#away(status.detail)
    this.#connecting = ''
    if (WORKING.has(status.phase)) this.#progress(status)
    else if (status.phase === 'waiting' && status.detail.startsWith(LEFT_JOB))
      this.#once(`left ${status.job?.name} ${status.detail}`, this.#colors.yellow(status.detail))
    else if (status.phase === 'finished' || status.phase === 'stopped')
      this.#once(
        `${status.phase} ${status.job?.name}`,
        this.#colors.green(
          `${status.phase}: ${status.detail}; ${status.samplesCommitted} samples of this machine are in the model`,
        ),
      )
  }

  #introduce({ job, adapter, base }: VolunteerStatus): void {
    if (job !== null) this.#once(`job ${job.name}`, `job      ${job.name}, for ${job.owner}: ${job.purpose}`)
    if (adapter !== null) this.#once('adapter', `adapter  ${adapterLabel(adapter)}${NO_GPU[adapter.executor]}`)
    if (base !== undefined) this.#once(`base of ${job?.name}`, `base     ${base}`)
  }

  #away(detail: string): void {
    const what = detail.split(';')[0] ?? detail
    if (this.#connecting === what) return
    this.#connecting = what
    this.#line(this.#colors.yellow(detail))
  }

  #progress(status: VolunteerStatus): void {
    const now = performance.now()
    if (!this.#out.isTTY && this.#printedAt > 0 && now - this.#printedAt < PIPE_INTERVAL_MS) return
    this.#printedAt = now
    const text = progressText(status)
    if (!this.#out.isTTY) return this.#line(text)
    this.#out.write(`\r\x1b[K${text.slice(0, Math.max(20, (this.#out.columns ?? 80) - 1))}`)
    this.#rewriting = true
  }

  #once(key: string, text: string): void {
    if (this.#said.has(key)) return
    this.#said.add(key)
    this.#line(text)
  }

  #line(text: string): void {
    if (this.#rewriting) this.#out.write('\n')
    this.#rewriting = false
    this.#out.write(`${text}\n`)
  }
}

function progressText({
  mode,
  ring,
  relayedLinks,
  tcpLinks,
  version,
  loss,
  samplesPerSecond,
  samplesCommitted,
  phase,
}: VolunteerStatus): string {
  const relayed = relayedLinks === 0 ? '' : `, ${relayedLinks} relayed`
  const overTcp = tcpLinks === 0 ? '' : `, ${tcpLinks} over TCP`
  const inRing = ring === null ? 'no ring' : `ring ${ring.rank + 1}/${ring.size}${overTcp}${relayed}`
  const place = mode === 'async' ? 'parameter server' : inRing
  const lossText = loss === null ? '' : `, loss ${loss.toFixed(4)}`
  return (
    `${place}, version ${version}${lossText}, ${Math.round(samplesPerSecond)} samples/s, ` +
    `${samplesCommitted} samples committed, ${phase}`
  )
}
