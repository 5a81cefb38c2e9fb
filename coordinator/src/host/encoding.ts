// Versions as bytes and back: computed in a thread of their own where the model is large, so that the event loop goes
// on meanwhile.
import { Worker } from 'node:worker_threads'
import {
  decodeVersionState,
  emptyStates,
  encodeVersionState,
  type ExportHeader,
  exportModel,
  initialVersionState,
  type VersionForm,
  type VersionState,
} from '@starling-grid/model'
import { GridError, isErrorCode, isGridError, type VersionRef } from '@starling-grid/protocol'

/** Bytes of parameters from which a thread is worth its start of some 0.3 s: below, an encoding takes a few ms. */
const OWN_THREAD_BYTES = 4 * 1024 * 1024
/** What an export says of its version beside the parameters. */
export type Known = Pick<
  ExportHeader,
  'accuracy' | 'accuracyConfirmed' | 'vocabulary' | 'signature' | 'tokenizer' | 'chat'
>

/** What makes version 0. */
export interface Beginning {
  readonly seed: number
  /** its parameters as f32, where a job names them; absent: the seed makes them */
  readonly initial?: Uint8Array
}

export type EncodingTask = { readonly form: VersionForm; readonly version: VersionRef } & (
  | {
      readonly type: 'export'
      readonly state: Uint8Array
      readonly known: Known
    }
  | ({ readonly type: 'seed' } & Beginning)
  /** answered with the same bytes when they are this version */
  | { readonly type: 'check'; readonly state: Uint8Array }
)

/** What a version holds: in the bytes that a member uploaded, or of version 0. */
export type DecodingTask = { readonly form: VersionForm; readonly version: VersionRef } & (
  | { readonly type: 'read'; readonly state: Uint8Array }
  | ({ readonly type: 'begin' } & Beginning)
)

type EncoderTask = EncodingTask | DecodingTask

export type EncodingAnswer =
  | { readonly bytes: Uint8Array }
  | { readonly held: VersionState }
  | { readonly code: string; readonly message: string }

/** `state` is not usable by the caller any more. @throws GridError 'version-corrupt' when it is none of this version */
export async function encoded(task: EncodingTask): Promise<Uint8Array> {
  const answer = await answerTo(task)
  if ('bytes' in answer) return answer.bytes
  throw new Error(`internal: no bytes came of the task ${task.type}`)
}

/** `state` is not usable by the caller any more. @throws GridError 'version-corrupt' when it is none of this version */
export async function decoded(task: DecodingTask): Promise<VersionState> {
  const answer = await answerTo(task)
  if ('held' in answer) return answer.held
  throw new Error(`internal: no state came of the task ${task.type}`)
}

async function answerTo(task: EncoderTask): Promise<Exclude<EncodingAnswer, { code: string }>> {
  const isLarge = task.form.layout.total * Float32Array.BYTES_PER_ELEMENT >= OWN_THREAD_BYTES
  const answer = isLarge ? await inThread(task) : computeNow(task)
  if (!('code' in answer)) return answer
  throw isErrorCode(answer.code)
    ? new GridError(answer.code, answer.message)
    : new Error(`internal: the task ${task.type} failed: ${answer.message}`)
}

/** In this thread. */
export function computeNow(task: EncoderTask): EncodingAnswer {
  try {
    return answerOf(task)
  } catch (error) {
    if (isGridError(error)) return { code: error.code, message: error.message }
    return { code: '', message: error instanceof Error ? (error.stack ?? error.message) : String(error) }
  }
}

function answerOf(task: EncoderTask): EncodingAnswer {
  const { form, version } = task
  switch (task.type) {
    case 'export':
      return { bytes: exportOf(task) }
    case 'seed':
      return { bytes: encodeVersionState({ ...form, ...beginningOf(task) }) }
    case 'check':
      decodeVersionState(task.state, { ...form, version })
      return { bytes: task.state }
    case 'read':
      return { held: decodeVersionState(task.state, { ...form, version }) }
    case 'begin':
      return { held: beginningOf(task) }
  }
}

function exportOf({ form, version, state, known }: Extract<EncodingTask, { type: 'export' }>): Uint8Array<ArrayBuffer> {
  const { parameters } = decodeVersionState(state, { ...form, version })
  return exportModel({ ...form, version, parameters, ...known })
}

function beginningOf({ form, version, seed, initial }: Extract<EncoderTask, Beginning>): VersionState {
  const { spec, optimizer, outer } = form
  if (initial === undefined) return { version, ...initialVersionState(spec, optimizer, seed, outer) }
  return { version, parameters: new Float32Array(new Uint8Array(initial).buffer), ...emptyStates(form) }
}

function inThread(task: EncoderTask): Promise<EncodingAnswer> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(new URL('./encoding-bootstrap.mjs', import.meta.url))
    worker.unref() // a process that ends does not wait for it
    worker.once('message', (answer: EncodingAnswer) => {
      resolve(answer)
      void worker.terminate()
    })
    worker.once('error', reject)
    worker.once('exit', (code) => reject(new Error(`an encoding's thread ended with code ${code}`)))
    worker.postMessage(task, 'state' in task ? whole(task.state) : [])
  })
}

/** The memory of an answer, given to the thread that asked. */
export function memoryOf(answer: EncodingAnswer): ArrayBuffer[] {
  if ('bytes' in answer) return whole(answer.bytes)
  if (!('held' in answer)) return []
  const { parameters, optimizerState, outerState } = answer.held
  return [parameters, ...optimizerState.slots, ...(outerState?.slots ?? [])].flatMap(whole)
}

/** The memory of these numbers, when it holds nothing else and may change its owner. */
function whole({ buffer, byteLength }: Uint8Array | Float32Array): ArrayBuffer[] {
  return buffer instanceof ArrayBuffer && buffer.byteLength === byteLength ? [buffer] : []
}
