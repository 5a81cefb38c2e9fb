// The run as signals: history and state of the stream. Both pages read it; neither knows of sockets.
import { type ReadonlySignal, signal } from '@preact/signals'
import { applyWatch, EMPTY_HISTORY, type RunHistory } from './run-history.ts'
import { type WatchLink, WatchSocket } from './watch-socket.ts'

export interface LiveRun {
  readonly history: ReadonlySignal<RunHistory>
  readonly link: ReadonlySignal<WatchLink>
  start(): void
  retryNow(): void
}

export function createLiveRun(): LiveRun {
  const history = signal<RunHistory>(EMPTY_HISTORY)
  const link = signal<WatchLink>({ type: 'connecting' })
  const socket = new WatchSocket({
    onMessage: (message) => (history.value = applyWatch(history.value, message)),
    onLink: (next) => (link.value = next),
  })
  return { history, link, start: () => socket.start(), retryNow: () => socket.retryNow() }
}
