// What ends a volunteer: the whole list. Anything else that fails costs a request, a lease or a session, and is tried
// again or handed back to the coordinator (R14).
import { type ErrorCode, GridError, isGridError } from '@starling-grid/protocol'

/** code → what its owner should do: trying again as it is would fail again. */
export const FATAL: Readonly<Partial<Record<ErrorCode, string>>> = {
  'protocol-version': 'Update the volunteer or the coordinator, whichever is older; in a browser, reload the page.',
  'model-hash': 'Update the volunteer or the coordinator, whichever is older; in a browser, reload the page.',
  'model-invalid': 'Update the volunteer: the coordinator trains a model that it does not know.',
  'invite-required':
    'Ask the owner of the coordinator for an invite link, and open that link or give it to `starling volunteer`.',
  'origin-refused': 'Open the address that the coordinator prints; it serves no other page.',
  'no-adapter': 'Run `npm run doctor`; in a browser, switch WebGPU on or use another browser.',
  'adapter-limit': 'Use a machine or an adapter with more memory, or choose it with --adapter.',
  'session-unknown': 'Start the volunteer again; in a browser, reload the page.',
  usage: 'Check the address and the options with --help.',
  unsupported: 'Update the volunteer: the job asks for something that it does not know.',
  'browser-missing': 'Run `npm run doctor`; it says what is missing.',
}

const ENDS_JOB: ReadonlySet<ErrorCode> = new Set(['own-limit', 'no-f16', 'requirement-unmet', 'device-lost'])

/** What ends the work on one job: another job may go well. */
export function endsJob(error: unknown): error is GridError {
  return isGridError(error) && ENDS_JOB.has(error.code)
}

/** Work that fails for it is not given back as if another try could help. */
export function endsWork(error: unknown): boolean {
  return isFatal(error) || endsJob(error)
}

export function isFatalCode(code: string): code is ErrorCode {
  return Object.hasOwn(FATAL, code)
}

/** Errors that are no GridError are defects of ours, and repeating them would hide them. */
export function isFatal(error: unknown): boolean {
  return !isGridError(error) || isFatalCode(error.code)
}

/** With the sentence of the list. */
export function explained(error: unknown): unknown {
  if (!isGridError(error)) return error
  const cure = FATAL[error.code]
  return cure === undefined
    ? error
    : new GridError(error.code, `${error.message.replace(/\.$/, '')}. What to do: ${cure}`, { cause: error })
}
