// A line of a coordinator's log. It names jobs, requests and members where they are known; tokens, addresses of people
// and bodies of requests never get here.
import type { JobId } from '@starling-grid/protocol'

export type LogLevel = 'debug' | 'info' | 'warn' | 'error'

export interface LogEntry {
  readonly level: LogLevel
  readonly message: string
  readonly job?: JobId
  /** as it names itself */
  readonly member?: string
  /** id of the HTTP request, which its answer has in x-request-id */
  readonly request?: string
  /** what else a program may look for: numbers and words of bounded tables */
  readonly about?: Readonly<Record<string, string | number>>
}

export type Log = (entry: LogEntry) => void
