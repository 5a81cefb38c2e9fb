// The asking side of a fetch (R7). It asks up to three members that hold the version for hashes. Chunks come from those
// that agree, in parallel. A member that goes away, lies or stalls costs the chunk that it was asked for, never what is
// here already.
import {
  chunksOf,
  type ErrorCode,
  FetchRefusalSchema,
  type FetchRequest,
  type Frame,
  GridError,
  HASH_BYTES,
  type HashList,
  isErrorCode,
  type MemberId,
  parse,
  parseJson,
  type Clock,
  type CancelTimer,
} from '@starling-grid/protocol'
import { agreedList, ChunkTracker, sameList, type StateChunk } from './chunk-board.ts'
import { blank } from './state-server.ts'

/** ms without an answer before a source counts as dead (R7: drop that source) */
const STALL_MS = 5000
/** Members that are asked at once: more would take upload from the ring and bring little. */
const MAX_SOURCES = 3
/** ms that the hashes of slower sources are waited for after the first */
const GRACE_MS = 500
/** ms before a busy source is asked again, at most; drawn below it */
const BUSY_MS = 400
/** Times that a busy source is asked when the coordinator has the state, too */
const BUSY_TRIES = 3
/** ms that a source without a link is not asked where another can be; twice as long each time, up to the longest */
const REST_MS = 10_000
const LONGEST_REST_MS = 300_000
/** Sources without a link that are remembered. */
const MOST_RESTING = 64
/** Bytes of a refusal's JSON. */
const MAX_REFUSAL_BYTES = 1024

export interface Wanted {
  readonly kind: FetchRequest['kind']
  readonly version: FetchRequest['version']
  readonly generation: number
  /** largest answer that is believed, bytes */
  readonly maxBytes: number
  /** as the coordinator says (G3); absent: most of the sources that are asked decide (R7) */
  readonly list?: HashList
  /** told of each chunk of `bytes` that is here and right */
  readonly onChunk?: (bytes: Uint8Array, chunk: StateChunk) => void
  /** told of each source that did not serve what it was asked for */
  readonly onFailed?: (source: MemberId) => void
}

export interface FetchParts {
  readonly clock: Clock
  send(to: MemberId, frame: Frame): void
  /** Resolves when frames to this member have a link to take. @throws GridError */
  reach(member: MemberId, signal: AbortSignal): Promise<void>
  /** no link to it came about in time: it is asked later */
  onUnreached?(member: MemberId): void
}

/** One question to one member. */
interface FetchQuestion {
  readonly wanted: Wanted
  take(frame: Frame): void
  fail(error: GridError): void
}

interface FetchTask {
  readonly wanted: Wanted
  readonly signal: AbortSignal
  /** another source has it all: busy members need not be waited for */
  readonly impatient: boolean
}

export class StateFetch {
  readonly #parts: FetchParts
  readonly #questions = new Map<MemberId, FetchQuestion>()
  /** sources without a link → when they are asked again, ms */
  readonly #resting = new Map<MemberId, { readonly until: number; readonly ms: number }>()
  /** what a fetch that was broken off had already: the next of the same version goes on there */
  #begun: { readonly name: string; readonly board: ChunkTracker } | undefined

  constructor(parts: FetchParts) {
    this.#parts = parts
  }

  /**
   * `rest`: the coordinator's copy from a byte on, when it has one: the last resort.
   * @throws GridError 'link-lost' when no source could serve, 'checksum' when the coordinator's copy is another one
   */
  async fetch(
    wanted: Wanted,
    sources: readonly MemberId[],
    signal: AbortSignal,
    rest?: (from: number) => Promise<Uint8Array>,
  ): Promise<Uint8Array<ArrayBuffer>> {
    const failures: string[] = []
    let left = [...sources]
    while (left.length > 0) {
      const asked = this.#awake(left, wanted).slice(0, MAX_SOURCES)
      if (asked.length === 0) break
      const failed = await this.#from(asked, { wanted, signal, impatient: rest !== undefined })
      signal.throwIfAborted()
      for (const { source, reason } of failed) {
        failures.push(reason)
        wanted.onFailed?.(source)
      }
      const board = this.#board(wanted)
      if (board?.done === true) return this.#finished(board)
      left = left.filter((source) => !failed.some((failure) => failure.source === source))
    }
    if (rest === undefined)
      throw new GridError(
        'link-lost',
        `expected version ${wanted.version.v} from a source, got none: ${failures.join('; ') || 'no source was named'}`,
      )
    return this.#rest(wanted, rest)
  }

  /** A frame of a source. Answers of older generations, and answers without a request, are ignored. */
  accept(from: MemberId, frame: Frame): void {
    const question = this.#questions.get(from)
    if (question === undefined || frame.generation !== question.wanted.generation) return
    if (frame.type === 'refusal') question.fail(refusalIn(frame, from))
    else question.take(frame)
  }

  lost(member: MemberId): void {
    this.#questions.get(member)?.fail(new GridError('link-lost', `${short(member)} went away while sending its state`))
  }

  /** Those that do not rest; all of them where none can be asked instead, unless the coordinator has it all. */
  #awake(sources: readonly MemberId[], { list, onFailed }: Wanted): readonly MemberId[] {
    const now = this.#parts.clock.now()
    const awake = sources.filter((source) => (this.#resting.get(source)?.until ?? 0) <= now)
    if (awake.length > 0) return awake
    if (list === undefined) return sources
    for (const source of sources) onFailed?.(source)
    return []
  }

  /** @throws GridError, or the reason of either signal */
  async #reach(source: MemberId, { signal, wanted }: FetchTask, late: AbortSignal): Promise<void> {
    const slow = new AbortController()
    const giveUp = (): void => slow.abort(new GridError('link-timeout', `no link to ${short(source)} in time`))
    // The coordinator's copy need not wait as long as a link may take.
    const cancelTimer = wanted.list === undefined ? () => undefined : this.#parts.clock.timer(STALL_MS, giveUp)
    try {
      await this.#parts.reach(source, AbortSignal.any([signal, late, slow.signal]))
      this.#resting.delete(source)
    } catch (error) {
      if (!signal.aborted) this.#letRest(source)
      throw error
    } finally {
      cancelTimer()
    }
  }

  #letRest(source: MemberId): void {
    const before = this.#resting.get(source)
    const ms = before === undefined ? REST_MS : Math.min(2 * before.ms, LONGEST_REST_MS)
    this.#resting.delete(source)
    this.#resting.set(source, { until: this.#parts.clock.now() + ms, ms })
    for (const old of this.#resting.keys()) if (this.#resting.size > MOST_RESTING) this.#resting.delete(old)
    this.#parts.onUnreached?.(source)
  }

  /** Asks these members for what is missing, and returns those that failed. */
  async #from(
    sources: readonly MemberId[],
    task: FetchTask,
  ): Promise<{ readonly source: MemberId; readonly reason: string }[]> {
    const failed: { readonly source: MemberId; readonly reason: string }[] = []
    const fail = (source: MemberId, error: unknown): void =>
      void failed.push({ source, reason: error instanceof Error ? error.message : String(error) })
    const { list: known } = task.wanted
    const lists = await this.#gather(sources, task, fail)
    const agreed = known ?? agreedList([...lists.values()])
    if (agreed === undefined) return failed
    const board = this.#resume(task.wanted, agreed)
    await Promise.all(
      [...lists].map(async ([source, list]) => {
        try {
          if (!sameList(list, agreed))
            throw new GridError(
              'digest-mismatch',
              `expected the bytes of the other sources, got others from ${short(source)}`,
            )
          for (let chunk = board.take(); chunk !== undefined; chunk = board.take())
            await this.#getChunk(source, { board, chunk, task })
        } catch (error) {
          fail(source, error)
        }
      }),
    )
    return failed
  }

  /** The hash lists of those that answer, soon after the first. Who comes too late may be asked again. */
  async #gather(
    sources: readonly MemberId[],
    task: FetchTask,
    fail: (source: MemberId, error: unknown) => void,
  ): Promise<ReadonlyMap<MemberId, HashList>> {
    const lists = new Map<MemberId, HashList>()
    const late = new AbortController()
    const signal = AbortSignal.any([task.signal, late.signal])
    let cancelTimer: CancelTimer | undefined
    await Promise.all(
      sources.map(async (source) => {
        try {
          await this.#reach(source, task, late.signal)
          lists.set(source, task.wanted.list ?? (await this.#askHashes(source, { ...task, signal })))
          cancelTimer ??= this.#parts.clock.timer(GRACE_MS, () =>
            late.abort(new GridError('link-timeout', 'slower than the others')),
          )
        } catch (error) {
          if (!late.signal.aborted) fail(source, error)
        }
      }),
    )
    cancelTimer?.()
    return lists
  }

  async #askHashes(source: MemberId, task: FetchTask): Promise<HashList> {
    for (let tries = 1; ; tries++) {
      try {
        return await this.#ask(
          source,
          task,
          { kind: task.wanted.kind, ask: 'hashes', version: task.wanted.version, from: 0, length: 0 },
          (frame, resolve) => resolve(hashList(frame, task.wanted)),
        )
      } catch (error) {
        const busy = error instanceof GridError && error.code === 'rate-exceeded'
        if (!busy || task.signal.aborted || (task.impatient && tries >= BUSY_TRIES)) throw error
        await this.#parts.clock.sleep(BUSY_MS * Math.random(), task.signal)
        task.signal.throwIfAborted()
      }
    }
  }

  async #getChunk(
    source: MemberId,
    { board, chunk, task }: { readonly board: ChunkTracker; readonly chunk: StateChunk; readonly task: FetchTask },
  ): Promise<void> {
    const { from, length } = chunk
    let next = from
    try {
      await this.#ask<void>(
        source,
        task,
        { kind: task.wanted.kind, ask: 'bytes', version: task.wanted.version, from, length },
        (frame, resolve) => {
          const { bucket, offset, payload } = frame
          if (frame.type === 'hashes') return // the answer to an older question
          if (
            frame.type !== 'chunk' ||
            bucket !== board.list.total ||
            offset !== next ||
            payload.byteLength === 0 ||
            offset + payload.byteLength > from + length
          )
            throw new GridError(
              'message-malformed',
              `expected the bytes that were asked for, got ${payload.byteLength} at ${offset} of ${bucket}`,
            )
          board.bytes.set(payload, offset)
          next += payload.byteLength
          if (next === from + length) resolve()
        },
      )
      if (!(await board.check(chunk)))
        throw new GridError('checksum', `expected a chunk that matches its hash, got another from ${short(source)}`)
      task.wanted.onChunk?.(board.bytes, chunk)
    } finally {
      board.giveBack(chunk) // unless it is here
    }
  }

  /** @throws GridError when the source refuses, stalls, is lost or answers nonsense; or the signal's reason */
  #ask<T>(
    source: MemberId,
    { wanted, signal }: FetchTask,
    request: FetchRequest,
    answer: (frame: Frame, resolve: (value: T) => void) => void,
  ): Promise<T> {
    return new Promise((resolve, reject) => {
      const end = (act: () => void): void => {
        cancelTimer()
        signal.removeEventListener('abort', abort)
        if (this.#questions.get(source) === question) this.#questions.delete(source)
        act()
      }
      const abort = (): void => end(() => reject(signal.reason))
      const stalled = (): void =>
        end(() =>
          reject(
            new GridError('link-timeout', `expected bytes from ${short(source)} within ${STALL_MS / 1000} s, got none`),
          ),
        )
      const question: FetchQuestion = {
        wanted,
        fail: (error) => end(() => reject(error)),
        take: (frame) => {
          cancelTimer()
          cancelTimer = this.#parts.clock.timer(STALL_MS, stalled)
          try {
            answer(frame, (value) => end(() => resolve(value)))
          } catch (error) {
            end(() => reject(error))
          }
        },
      }
      let cancelTimer = this.#parts.clock.timer(STALL_MS, stalled)
      this.#questions.set(source, question)
      signal.addEventListener('abort', abort)
      if (signal.aborted) return abort()
      this.#parts.send(source, {
        ...blank(wanted.generation),
        type: 'fetch',
        payload: new TextEncoder().encode(JSON.stringify(request)),
      })
    })
  }

  async #rest(wanted: Wanted, rest: (from: number) => Promise<Uint8Array>): Promise<Uint8Array<ArrayBuffer>> {
    const board = this.#board(wanted)
    if (board === undefined) return new Uint8Array(await rest(0))
    const from = board.firstMissing
    if (await board.fill(from, await rest(from))) return this.#finished(board)
    throw new GridError(
      'checksum',
      `expected version ${wanted.version.v} as members hold it, got another from the coordinator`,
    )
  }

  #board(wanted: Wanted): ChunkTracker | undefined {
    return this.#begun?.name === nameOf(wanted) ? this.#begun.board : undefined
  }

  #resume(wanted: Wanted, agreed: HashList): ChunkTracker {
    const existing = this.#board(wanted)
    if (existing !== undefined && sameList(existing.list, agreed)) return existing
    const board = new ChunkTracker(agreed)
    this.#begun = { name: nameOf(wanted), board }
    return board
  }

  #finished(board: ChunkTracker): Uint8Array<ArrayBuffer> {
    this.#begun = undefined
    return board.bytes
  }
}

/** @throws GridError 'message-malformed': nothing is allocated before its size is believable */
function hashList(frame: Frame, { maxBytes }: Wanted): HashList {
  const { type, bucket: total, payload } = frame
  if (type !== 'hashes' || total === 0 || total > maxBytes || payload.byteLength !== HASH_BYTES * chunksOf(total))
    throw new GridError(
      'message-malformed',
      `expected a state as asked for, got ${total} bytes with ${payload.byteLength / HASH_BYTES} hashes`,
    )
  return { total, hashes: payload.slice() }
}

function refusalIn(frame: Frame, from: MemberId): GridError {
  try {
    const { code, message } = parse(
      FetchRefusalSchema,
      parseJson(new TextDecoder().decode(frame.payload), MAX_REFUSAL_BYTES, 'a refusal'),
      'a refusal',
    )
    const reason: ErrorCode = isErrorCode(code) ? code : 'message-unexpected'
    return new GridError(reason, `${short(from)} cannot serve: ${message}`)
  } catch (error) {
    return error instanceof GridError
      ? error
      : new GridError('message-malformed', `expected a reason with the refusal of ${short(from)}, got none`)
  }
}

function nameOf({ kind, version }: Wanted): string {
  return `${kind} ${version.v} ${version.id}`
}

function short(member: MemberId): string {
  return member.slice(0, 8)
}
