import { ROUTES } from '@starling-grid/protocol'
// What this device does right now and has added so far.
import type { VolunteerStatus } from '@starling-grid/volunteer'
import type { ComponentChildren } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { bytes, count, loss, plural, rate } from '../format.ts'
import { PHASE_WORDS } from './announcement.ts'
import type { SessionState } from './session.ts'

/** Statuses come ten times a second; eyes read two. */
const READING_MS = 500

export interface ContributionProps {
  readonly state: Extract<SessionState, { type: 'running' | 'stopping' }>
  readonly onStop: () => void
}

export function Contribution(props: ContributionProps) {
  const { type } = props.state
  const status = usePaced(props.state.status)
  return (
    <div class="contribution">
      <div class="tally">
        <span class="number">{count(status?.samplesCommitted ?? 0)}</span>
        <span class="unit">{counted(status)}</span>
      </div>
      <dl class="readings">
        <Reading term="Now">
          {status === null ? 'Starting' : PHASE_WORDS[status.phase]}
          {status !== null && status.detail !== '' && <small>{status.detail}</small>}
        </Reading>
        <Reading term="Speed">{rate(status?.samplesPerSecond ?? 0)} samples/s</Reading>
        <Reading term="Loss">{loss(status?.loss ?? null)}</Reading>
        <Reading term="Rank">{rank(status)}</Reading>
        <Reading term="Sent">{bytes(status?.bytesSent ?? 0)}</Reading>
        <Reading term="Received">{bytes(status?.bytesReceived ?? 0)}</Reading>
        <Reading term="Computes on" wide>
          {adapterInWords(status)}
        </Reading>
      </dl>
      <div class="row">
        <button type="button" class="stop" disabled={type === 'stopping'} onClick={props.onStop}>
          {type === 'stopping' ? 'Leaving …' : 'Stop'}
        </button>
        <a class="aside" href={ROUTES.dashboard} target="_blank" rel="noopener">
          Watch the whole run
        </a>
      </div>
    </div>
  )
}

/** The newest value, at most every READING_MS. */
function usePaced<T>(value: T): T {
  const [shown, setShown] = useState(value)
  const last = useRef(0)
  useEffect(() => {
    const show = (): void => {
      last.current = Date.now()
      setShown(value)
    }
    const timer = setTimeout(show, Math.max(0, last.current + READING_MS - Date.now()))
    return () => clearTimeout(timer)
  }, [value])
  return shown
}

function Reading(props: { readonly term: string; readonly wide?: boolean; readonly children: ComponentChildren }) {
  return (
    <div class={props.wide === true ? 'wide' : ''}>
      <dt>{props.term}</dt>
      <dd>{props.children}</dd>
    </div>
  )
}

function counted(status: VolunteerStatus | null): string {
  if (status === null || status.samplesCommitted === 0) return 'samples of yours are counted so far'
  return `samples of yours are in version ${count(status.version)}`
}

function rank(status: VolunteerStatus | null): string {
  if (status?.mode === 'async') return 'with the coordinator'
  if (status === null || status.ring === null) return 'not in the ring yet'
  const inRing = `${status.ring.rank + 1} of ${status.ring.size} in the ring`
  return status.relayedLinks === 0
    ? inRing
    : `${inRing}, ${plural(status.relayedLinks, 'link')} through the coordinator`
}

function adapterInWords(status: VolunteerStatus | null): string {
  const adapter = status?.adapter
  if (adapter === null || adapter === undefined) return 'finding out'
  return adapter.software ? `${adapter.name}: software, without a GPU` : adapter.name
}
