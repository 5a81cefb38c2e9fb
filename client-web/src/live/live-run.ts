// The run as signals: history and state of the stream. Both pages read it; neither handles sockets.
import { type ReadonlySignal, signal } from '@preact/signals'
import type { JobId } from '@starling-grid/protocol'
import { openPageAt } from './other-coordinator.ts'
import { forgetOwnerToken } from './owner-token.ts'
import { applyWatch, EMPTY_HISTORY, type PageHistory } from './run-history.ts'
import { type WatchLink, WatchSocket } from './watch-socket.ts'

export interface LiveRun {
  readonly history: ReadonlySignal<PageHistory>
  readonly link: ReadonlySignal<WatchLink>
  /** the owner's token; undefined for other readers, and after a refusal */
  readonly token: ReadonlySignal<string | undefined>
  start(): void
  retryNow(): void
  /** Another job from now on; undefined: the newest. */
  show(job: JobId | undefined): void
}

interface LiveRunOptions {
  readonly token?: string | undefined
  /** undefined: the newest */
  readonly job: JobId | undefined
  /** the page may go to the coordinator that has the job; absent: always */
  readonly mayLeave?: () => boolean
}

export function createLiveRun({ token: ownerToken, job, mayLeave = () => true }: LiveRunOptions): LiveRun {
  const token = signal(ownerToken)
  const history = signal<PageHistory>(EMPTY_HISTORY)
  const link = signal<WatchLink>({ type: 'connecting' })
  const socket = new WatchSocket({
    token: ownerToken,
    job,
    onTokenRefused: () => {
      token.value = undefined
      forgetOwnerToken()
    },
    onMessage: (message) => {
      if (message.type === 'none' && message.at !== undefined && mayLeave())
        openPageAt(message.at.url, { job: message.at.job, token: token.value })
      history.value = applyWatch(history.value, message)
    },
    onLink: (next) => {
      link.value = next
    },
    onGone: () => {
      const { run } = history.value
      const [other] = run?.coordinators?.others ?? []
      if (other !== undefined && mayLeave()) openPageAt(other, { job: run?.job.id, token: token.value, isGone: true })
    },
  })
  const show = (shown: JobId | undefined): void => {
    history.value = EMPTY_HISTORY
    socket.watch(shown)
  }
  return { history, link, token, start: () => socket.start(), retryNow: () => socket.retryNow(), show }
}
