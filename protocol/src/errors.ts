// The one table of refusals. Every error that a user, a peer or an operator can meet has its code here. A message
// states what was expected, what arrived, and what to do.

/** code → what it means, in one line (the dashboard shows them with its counts of refusals). */
export const ERROR_CODES = {
  // wire: a peer sent a message that no peer should send
  'message-malformed': 'a message or frame does not match its schema',
  'message-too-large': 'a message or frame is over its size limit',
  'message-unexpected': 'a well-formed message that has no place in the present state',
  'rate-exceeded': 'more messages than the limit allows',
  // joining
  'protocol-version': 'client and coordinator speak different protocol versions',
  'model-hash': 'the volunteer would compute another model than the run trains',
  'session-unknown': 'no such session, or its token is wrong',
  'identity-unproven': 'a hello does not prove that its sender owns the id that it names',
  'token-required': 'the route needs the token of an owner',
  'scope-missing': 'the token does not allow what the route does',
  'invite-required': 'the coordinator takes invited volunteers only, and no valid invite came',
  'origin-refused': 'the request comes from a page that this coordinator does not serve',
  'grid-full': 'the coordinator takes no more volunteers now',
  'coordinator-leaving': 'this coordinator ends, or another one took over; the same address is asked again',
  // fencing
  'generation-stale': 'the frame or message belongs to an older generation of the ring',
  'lease-stale': 'the lease was revoked, expired, or already used',
  'mode-stale': 'the push belongs to an older mode epoch',
  'base-stale': 'the base version is off the chain or too old',
  duplicate: 'the blocks of this push are already counted',
  // content
  'gradient-not-finite': 'a gradient holds NaN or infinity',
  'gradient-outlier': 'a part of a gradient is far larger than the same part of all others',
  'gradient-unproven':
    'the usual size of gradients is not known yet: this one is only measured, and its blocks go back',
  'gradient-shape': 'a gradient has another length than the model',
  checksum: 'bytes do not match their checksum or hash',
  'shard-corrupt': 'a data shard does not match its SHA-256 name',
  'version-corrupt': 'a version does not match its digest',
  'digest-mismatch': 'two members hold different bytes for the same step',
  // links
  'link-lost': 'a connection to another volunteer broke',
  'link-timeout': 'a connection to another volunteer could not be opened in time',
  'coordinator-lost': 'the connection to the coordinator broke',
  'reduce-timeout': 'a reduce made no progress within its deadline',
  // a cluster that the operator looks after
  'cluster-refused': 'the API server of the cluster refused a request, or does not answer',
  // this machine and its user
  'no-adapter': 'no WebGPU adapter was found',
  'adapter-limit': 'the adapter lacks a limit or feature that the model needs',
  'no-f16': 'the job is computed in half precision, which the adapter does not have',
  'own-limit': "the job needs more than the volunteer's owner allows, or its kernels take too long",
  'requirement-unmet': 'the job requires what this machine does not have, or what its owner does not allow',
  'device-lost': 'the GPU device was lost',
  'no-key': 'the key that a volunteer signs with cannot be made or read',
  'model-invalid': 'the model specification is wrong',
  'job-invalid': 'the job description is wrong',
  'dataset-unreadable': 'a dataset file is missing or not what it should be',
  'port-taken': 'the port is in use',
  'folder-unwritable': 'the data folder cannot be written',
  'folder-in-use': 'another coordinator uses the data folder',
  'journal-damaged': 'the journal of a job cannot be read',
  'disk-failed': 'a write to disk failed',
  'browser-missing': 'no Chromium was found',
  cancelled: 'the work was stopped on purpose',
  usage: 'a command was called wrongly',
  unsupported: 'asked for something that this version does not do',
} as const

export type ErrorCode = keyof typeof ERROR_CODES

export const isErrorCode = (code: string): code is ErrorCode => Object.hasOwn(ERROR_CODES, code)

/**
 * An expected failure: shown to a person or sent to a peer by its code. A bug throws a plain Error('internal: …')
 * instead.
 */
export class GridError extends Error {
  readonly code: ErrorCode
  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options)
    this.name = 'GridError'
    this.code = code
  }
}

export function isGridError(value: unknown): value is GridError {
  return value instanceof GridError
}

/** What to print for any thrown value: message and, for expected failures, the code. */
export function describeError(value: unknown): string {
  if (isGridError(value)) return `${value.message} (${value.code})`
  return value instanceof Error ? value.message : String(value)
}
