// Encodings of whole versions that take long: computed in a thread of their own where they are large, so that the event
// loop goes on meanwhile.
import { Worker } from 'node:worker_threads'
import {
  decodeVersionState,
  encodeVersionState,
  type ExportedModel,
  exportModel,
  initialVersionState,
  type VersionForm,
} from '@starling-grid/model'
import { GridError, isErrorCode, isGridError, type VersionRef } from '@starling-grid/protocol'

/** Bytes of parameters from which a thread is worth its start of some 0.3 s: below, an encoding takes a few ms. */
const OWN_THREAD_BYTES = 4 * 1024 * 1024

export type EncodingTask = { readonly form: VersionForm; readonly version: VersionRef } & (
  | {
      readonly type: 'export'
      /** the whole state, as its member uploaded it; not usable by the caller any more */
      readonly state: Uint8Array
      readonly known: Pick<ExportedModel, 'accuracy' | 'accuracyConfirmed' | 'vocabulary'>
    }
  | { readonly type: 'seed'; readonly seed: number }
)

export type EncodingAnswer =
  | { readonly bytes: Uint8Array<ArrayBuffer> }
  | { readonly code: string; readonly message: string }

/** @throws GridError 'version-corrupt' when the state is none of this version */
export async function encoded(task: EncodingTask): Promise<Uint8Array> {
  const isLarge = task.form.layout.total * Float32Array.BYTES_PER_ELEMENT >= OWN_THREAD_BYTES
  const answer = isLarge ? await inThread(task) : encodeNow(task)
  if ('bytes' in answer) return answer.bytes
  throw isErrorCode(answer.code)
    ? new GridError(answer.code, answer.message)
    : new Error(`internal: an encoding failed: ${answer.message}`)
}

/** In this thread. */
export function encodeNow(task: EncodingTask): EncodingAnswer {
  try {
    return { bytes: task.type === 'export' ? exportOf(task) : seedOf(task) }
  } catch (error) {
    if (isGridError(error)) return { code: error.code, message: error.message }
    return { code: '', message: error instanceof Error ? (error.stack ?? error.message) : String(error) }
  }
}

function exportOf({ form, version, state, known }: Extract<EncodingTask, { type: 'export' }>): Uint8Array<ArrayBuffer> {
  const { parameters } = decodeVersionState(state, { ...form, version })
  return exportModel({ ...form, version, parameters, ...known })
}

function seedOf({ form, version, seed }: Extract<EncodingTask, { type: 'seed' }>): Uint8Array<ArrayBuffer> {
  const { spec, optimizer, outer } = form
  return encodeVersionState({ ...form, version, ...initialVersionState(spec, optimizer, seed, outer) })
}

function inThread(task: EncodingTask): Promise<EncodingAnswer> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(new URL('./encoding-bootstrap.mjs', import.meta.url))
    worker.unref() // a process that ends does not wait for it
    worker.once('message', (answer: EncodingAnswer) => {
      resolve(answer)
      void worker.terminate()
    })
    worker.once('error', reject)
    worker.once('exit', (code) => reject(new Error(`an encoding's thread ended with code ${code}`)))
    worker.postMessage(task, task.type === 'export' ? whole(task.state) : [])
  })
}

/** The memory of these bytes, when it holds nothing else and may change its owner. */
function whole({ buffer, byteLength }: Uint8Array): ArrayBuffer[] {
  return buffer instanceof ArrayBuffer && buffer.byteLength === byteLength ? [buffer] : []
}
