// State from member to member while a generation forms (R7): a request names what is wanted and from which byte on; the
// answer is a run of chunks, resumable, and a refusal when the source cannot serve.
import { FetchSchema, FRAME_PAYLOAD_BYTES, type FetchRequest, type Frame, GridError, type MemberId, parse, parseJson } from '@starling-grid/protocol'

/** ms without a chunk before a source counts as dead (R7: drop that source) */
const STALL_MS = 5000

export interface Wanted {
  readonly kind: FetchRequest['kind']
  readonly version: FetchRequest['version']
  readonly generation: number
  /** largest answer that is believed, bytes */
  readonly maxBytes: number
}

interface Fetch {
  readonly wanted: Wanted
  readonly source: MemberId
  bytes: Uint8Array<ArrayBuffer> | undefined
  received: number
  readonly settle: (result: Uint8Array<ArrayBuffer> | GridError) => void
  timer: ReturnType<typeof setTimeout> | undefined
}

type Send = (to: MemberId, frame: Frame) => void

/** The asking side: one fetch at a time. */
export class StateFetch {
  readonly #send: Send
  #running: Fetch | undefined

  constructor(send: Send) {
    this.#send = send
  }

  /** @throws GridError when the source refuses, stalls, or answers nonsense */
  fetch(wanted: Wanted, source: MemberId): Promise<Uint8Array<ArrayBuffer>> {
    this.cancel('a newer fetch')
    return new Promise((resolve, reject) => {
      const settle: Fetch['settle'] = (result) => {
        clearTimeout(running.timer)
        if (this.#running === running) this.#running = undefined
        if (result instanceof GridError) reject(result)
        else resolve(result)
      }
      const running: Fetch = { wanted, source, bytes: undefined, received: 0, settle, timer: undefined }
      this.#running = running
      this.#ask(running)
    })
  }

  /** A chunk or refusal from a member. Answers of older fetches are ignored. */
  accept(from: MemberId, frame: Frame): void {
    const running = this.#running
    if (running === undefined || from !== running.source || frame.generation !== running.wanted.generation) return
    if (frame.type === 'refusal') return running.settle(new GridError('message-unexpected', `${from.slice(0, 8)} cannot serve version ${running.wanted.version.v}`))
    this.#take(running, frame)
  }

  lost(member: MemberId): void {
    if (this.#running?.source === member) this.#running.settle(new GridError('link-lost', `${member.slice(0, 8)} went away while sending its state`))
  }

  cancel(why: string): void {
    this.#running?.settle(new GridError('link-lost', `the fetch was given up: ${why}`))
  }

  /** offset: first byte; bucket: bytes in all */
  #take(running: Fetch, frame: Frame): void {
    const total = frame.bucket
    if (total > running.wanted.maxBytes || frame.offset !== running.received || frame.offset + frame.payload.byteLength > total)
      return running.settle(new GridError('message-malformed', `a state of ${total} bytes at ${frame.offset} does not fit what was asked for`))
    running.bytes ??= new Uint8Array(total)
    running.bytes.set(frame.payload, frame.offset)
    running.received += frame.payload.byteLength
    this.#watch(running)
    if (running.received === total) running.settle(running.bytes)
  }

  #ask(running: Fetch): void {
    const { kind, version, generation } = running.wanted
    const request: FetchRequest = { kind, version, from: running.received }
    this.#send(running.source, { ...blank(generation), type: 'fetch', payload: new TextEncoder().encode(JSON.stringify(request)) })
    this.#watch(running)
  }

  #watch(running: Fetch): void {
    clearTimeout(running.timer)
    running.timer = setTimeout(() => running.settle(new GridError('link-timeout', `${running.source.slice(0, 8)} sent nothing for ${STALL_MS / 1000} s`)), STALL_MS)
  }
}

/** The serving side: `bytesOf` answers only while the ballot is the promised one and the version is held whole (R7). */
export function serveFetch(to: MemberId, frame: Frame, bytesOf: (request: FetchRequest, generation: number) => Uint8Array | undefined, send: Send): void {
  const text = new TextDecoder().decode(frame.payload)
  const request = parse(FetchSchema, parseJson(text, 1024, 'a fetch request'), 'a fetch request')
  const bytes = bytesOf(request, frame.generation)
  if (bytes === undefined) return send(to, { ...blank(frame.generation), type: 'refusal', payload: new Uint8Array(0) })
  for (let offset = request.from; offset < bytes.byteLength; offset += FRAME_PAYLOAD_BYTES)
    send(to, { ...blank(frame.generation), type: 'chunk', bucket: bytes.byteLength, offset, payload: bytes.subarray(offset, offset + FRAME_PAYLOAD_BYTES) })
}

function blank(generation: number): Frame {
  return { type: 'fetch', generation, step: 0, bucket: 0, hop: 0, offset: 0, payload: new Uint8Array(0) }
}
