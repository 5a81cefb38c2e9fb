// Versions of one run as bytes: what members upload, what volunteers and owners download, and which blobs are no longer
// needed.
import { encodingVector, exportBytes, maxVersionBytes, parameterParts, type VersionState } from '@starling-grid/model'
import {
  GridError,
  hashChunks,
  isGridError,
  type JobId,
  type MemberId,
  type Sha256,
  signatureOf,
  type VersionId,
  type VersionRef,
  writeHashList,
} from '@starling-grid/protocol'
import type { BlobStore } from '../blobs/blob-store.ts'
import { copied, type Stored } from '../blobs/stored.ts'
import type { CoordinatorClock } from '../clock.ts'
import type { Job } from '../jobs/jobs.ts'
import type { ParameterServer } from '../parameter-server/parameter-server.ts'
import { decodePushMemory, type PushMemory } from '../parameter-server/push-memory.ts'
import { summary, validationBlocks } from '../run/history/validation.ts'
import { withBytes } from '../run/journal-replay.ts'
import type { Checkpoint, DamagedCheckpoint, RunState } from '../run/state.ts'
import { inTurns } from '../turns.ts'
import { type Beginning, decoded, encoded, type Known } from './encoding.ts'
import type { KeptFiles } from './kept-files.ts'

/** ms after which an upload that became no checkpoint never will */
const UPLOAD_LIFE_MS = 120_000

/** A model to take home. */
export interface Exported {
  readonly version: VersionRef
  readonly etag: string
  readonly bytes: number
  readonly stored: () => Promise<Stored>
}

export interface KeptCheckpoint {
  readonly v: number
  readonly id: VersionId
  readonly bytes: number
  /** a second member sent the same digest (R15) */
  readonly witnessed: boolean
  readonly sha256: Sha256
}

export interface VersionParts {
  readonly clock: CoordinatorClock
  readonly job: Job
  readonly state: RunState
  readonly blobs: BlobStore
  readonly files: KeptFiles
  readonly server: ParameterServer
  /** a checkpoint cannot be read: an older one has to serve */
  readonly onDamaged: (damaged: DamagedCheckpoint) => void
}

/** A file, or a vector of halves (model/src/encoded-vector.ts). */
export type ParametersAs = 'f32' | 'f16'

export class Versions {
  readonly #parts: VersionParts
  /** uploads that are no checkpoint yet, and perhaps never will be → when they came */
  readonly #uploads = new Map<Sha256, number>()
  /** the last answers, or their making: in async mode many volunteers ask for the same version within a second */
  readonly #encoded = new Map<
    ParametersAs,
    { readonly id: VersionId; readonly bytes: Promise<Uint8Array | undefined> }
  >()

  /** of the answers that are kept */
  readonly #hashes = new WeakMap<Uint8Array, Promise<Uint8Array>>()

  /** what the job had let go of when it was tidied last: the entry that let go is durable by the next time (R1) */
  #released: ReadonlySet<Sha256 | undefined> = new Set()

  constructor(parts: VersionParts) {
    this.#parts = parts
  }

  /** Bytes that an upload of this model may have. */
  get maxBytes(): number {
    return maxVersionBytes(this.#parts.job.form)
  }

  /** Whether this member was asked for this version: whatever else comes would only fill the disk. */
  expects(member: MemberId, version: VersionRef): boolean {
    const { phase, checkpointing, chain } = this.#parts.state
    const { asked } = checkpointing
    if (phase.type === 'handover') return phase.source === member && phase.target.id === version.id
    const onChain = chain.at(version.v)
    const otherBranch = onChain !== undefined && onChain.id !== version.id
    return asked?.uploader === member && asked.v === version.v && !otherBranch
  }

  /**
   * Checked and durable; the bytes are not usable by the caller any more. @throws GridError 'version-corrupt',
   * 'disk-failed'
   */
  async accept(
    version: VersionRef,
    state: Uint8Array,
  ): Promise<{ readonly version: VersionRef; readonly blob: Sha256; readonly bytes: number }> {
    const { job, blobs } = this.#parts
    const bytes = await encoded({ type: 'check', form: job.form, version, state })
    const blob = await blobs.put(bytes)
    this.#uploads.set(blob, this.#parts.clock.awake())
    return { version, blob, bytes: bytes.byteLength }
  }

  /** The whole state, from a checkpoint, or of version 0; undefined when it is not kept. */
  async state(id: VersionId): Promise<Stored | undefined> {
    const { state, job, blobs, files } = this.#parts
    const checkpoint = checkpointOf(state, id)
    if (checkpoint === undefined) return undefined
    const { blob } = checkpoint
    if (blob !== undefined)
      return this.#reading(checkpoint, async () => (await blobs.read(blob)) ?? this.#tidied(checkpoint))
    return files.file(beginningSlot(job.id), id, () => this.bytesOf(checkpoint))
  }

  /**
   * What makes version 0.
   * @throws GridError 'disk-failed' when its parameters are not there: no older version serves
   */
  async #beginning(): Promise<Beginning> {
    const { blobs, job } = this.#parts
    const { seed } = job.spec
    if (job.initial === undefined) return { seed }
    const initial = await blobs.get(job.initial).catch((error: unknown) => {
      if (isDamage(error)) return undefined
      throw error
    })
    if (initial !== undefined) return { seed, initial }
    throw new GridError(
      'disk-failed',
      `expected the parameters of version 0 in the data folder, got no whole blob ${job.initial}; ` +
        'restore it from a backup',
    )
  }

  /** Only the parameters: of a recent version of the parameter server, or of a checkpoint. */
  async parameters(id: VersionId, as: ParametersAs = 'f32'): Promise<Uint8Array | undefined> {
    const existing = this.#encoded.get(as)
    if (existing?.id === id) return existing.bytes
    const encoding = { id, bytes: this.#encodeParameters(id, as) }
    this.#encoded.set(as, encoding)
    const bytes = await encoding.bytes.catch(() => undefined)
    if (bytes === undefined && this.#encoded.get(as) === encoding) this.#encoded.delete(as) // kept by then, perhaps
    return encoding.bytes
  }

  /**
   * Of the chunks of these bytes (protocol/src/hash-list.ts): what of them came from a member is checked with it (G3).
   */
  async hashes(id: VersionId, as: ParametersAs): Promise<Uint8Array | undefined> {
    const bytes = await this.parameters(id, as)
    if (bytes === undefined) return undefined
    const known = this.#hashes.get(bytes) ?? hashChunks(bytes)
    this.#hashes.set(bytes, known)
    return writeHashList({ total: bytes.byteLength, hashes: await known })
  }

  async #encodeParameters(id: VersionId, as: ParametersAs): Promise<Uint8Array | undefined> {
    const { job, server } = this.#parts
    const recent = server.parametersOf(id)
    const held = recent ?? (await this.#stored(id))
    if (held === undefined) return undefined
    const { version, parameters } = held
    const bytes =
      as === 'f16'
        ? await inTurns(encodingVector(parameters, 'f16'), this.#parts.clock)
        : await copied(parameterParts({ ...job.form, version, parameters }), this.#parts.clock)
    // Newer versions may have been written over it meanwhile.
    const isWhole = recent === undefined || server.parametersOf(id)?.parameters === parameters
    return isWhole ? bytes : this.#encodeParameters(id, as)
  }

  /** Parameters that the parameter server still holds, to be read at once. */
  recent(id: VersionId): Float32Array | undefined {
    return this.#parts.server.parametersOf(id)?.parameters
  }

  /** @throws GridError 'shard-corrupt', 'version-corrupt' when the blob was lost or damaged */
  async load(checkpoint: Checkpoint): Promise<VersionState> {
    const { form } = this.#parts.job
    const { blob, version } = checkpoint
    if (blob === undefined) return decoded({ type: 'begin', form, version, ...(await this.#beginning()) })
    return decoded({ type: 'read', form, version, state: await this.bytesOf(checkpoint) })
  }

  /**
   * The whole state, as its member uploaded it, or of version 0. @throws GridError 'version-corrupt', 'shard-corrupt',
   * 'disk-failed'
   */
  async bytesOf({ blob, version }: Checkpoint): Promise<Uint8Array> {
    const { form } = this.#parts.job
    if (blob === undefined) return encoded({ type: 'seed', form, version, ...(await this.#beginning()) })
    const bytes = await this.#parts.blobs.get(blob)
    if (bytes !== undefined) return bytes
    throw gone({ blob, version })
  }

  /**
   * Of older checkpoints the bytes are not kept. @throws GridError 'version-corrupt' of one whose bytes should be there
   */
  #tidied(checkpoint: Checkpoint): undefined {
    const { id } = checkpoint.version
    if (withBytes(this.#parts.state).some(({ version }) => version.id === id)) throw gone(checkpoint)
  }

  /** Says of a checkpoint whose bytes are wrong that it is damaged. A disk that fails for a while damages none. */
  async #reading<T>({ version }: Checkpoint, read: () => Promise<T>): Promise<T> {
    try {
      return await read()
    } catch (error) {
      if (isDamage(error)) this.#parts.onDamaged({ version, problem: error.message, neededBy: 'reader' })
      throw error
    }
  }

  /** What the parameter server that wrote it remembered; nothing of a member's. @throws GridError 'version-corrupt' */
  async remembered({ version, remembered }: Checkpoint): Promise<PushMemory | undefined> {
    if (remembered === undefined) return undefined
    const { job, blobs } = this.#parts
    const bytes = await blobs.get(remembered)
    if (bytes === undefined)
      throw new GridError(
        'version-corrupt',
        `expected the server's memory of checkpoint ${version.v} in the data folder, got no blob ${remembered}; ` +
          'restore it from a backup',
      )
    return decodePushMemory(
      bytes,
      version,
      job.config.async.delayCompensation === undefined ? 0 : job.form.layout.trained,
    )
  }

  /**
   * A durable version for download, by default the newest, encoded when it is first asked for; undefined where its
   * bytes are not kept.
   */
  export(v?: number): Exported | undefined {
    const { state, job, files } = this.#parts
    const kept = withBytes(state)
    const checkpoint = v === undefined ? kept.at(-1) : kept.findLast(({ version }) => version.v === v)
    if (checkpoint === undefined) return undefined
    const { version } = checkpoint
    const { validated, config } = state
    const measured = config.validationBlocks > 0 && (validated.get(version.id)?.size ?? 0) >= validationBlocks(state)
    const etag = measured ? `${version.id}-validated` : version.id
    const slot = checkpoint === kept.at(-1) ? exportSlot(job.id) : olderSlot(job.id)
    const known = this.#knownOf(version, measured)
    const stored = (): Promise<Stored> => files.file(slot, etag, () => this.#encodeExport(checkpoint, known))
    const bytes = files.peek(slot, etag)?.bytes ?? exportBytes({ ...job.form, version, ...known })
    return { version, etag, bytes, stored }
  }

  /** Versions that can be downloaded, the oldest first. */
  exportable(): readonly VersionRef[] {
    return withBytes(this.#parts.state).map(({ version }) => version)
  }

  /** Checkpoints whose bytes are kept, the oldest first: whole states, as members upload them. */
  async kept(): Promise<readonly KeptCheckpoint[]> {
    const { state, blobs } = this.#parts
    const found = withBytes(state).map(async ({ version: { v, id }, blob, witnessed }) => {
      const stat = blob && (await blobs.stat(blob))
      return blob === undefined || !stat ? [] : [{ v, id, bytes: stat.bytes, witnessed, sha256: blob }]
    })
    return (await Promise.all(found)).flat()
  }

  #knownOf({ id }: VersionRef, measured: boolean): Known {
    const { state, job } = this.#parts
    const { vocabulary } = job.manifest
    const { tokenizer, chat, ...names } = job.words
    const { accuracy, confirmed } = summary(state, id)
    return {
      ...(measured ? { accuracy, accuracyConfirmed: confirmed } : {}),
      ...(vocabulary === undefined ? {} : { vocabulary }),
      ...(tokenizer === undefined ? {} : { tokenizer }),
      ...(chat === undefined ? {} : { chat: JSON.stringify(chat) }),
      signature: signatureOf(job.manifest, names),
    }
  }

  #encodeExport(checkpoint: Checkpoint, known: Known): Promise<Uint8Array> {
    const { form } = this.#parts.job
    const { version } = checkpoint
    return this.#reading(checkpoint, async () =>
      encoded({ type: 'export', form, version, state: await this.bytesOf(checkpoint), known }),
    )
  }

  /** Blobs that checkpoints and uploads have. */
  blobs(): Sha256[] {
    const { state } = this.#parts
    const named = [...remembered(state), ...state.released].flatMap(({ blob, remembered }) => [blob, remembered])
    return [...named, state.checkpointing.upload?.blob, ...this.#uploads.keys()].filter((blob) => blob !== undefined)
  }

  /** The run is deleted: what was encoded for its readers goes. */
  async forget(): Promise<void> {
    const { files, job } = this.#parts
    await Promise.all([exportSlot, olderSlot, beginningSlot].map((slot) => files.drop(slot(job.id))))
  }

  /** Deletes what no checkpoint, no decision under way and no reader needs; after each new checkpoint. */
  async tidy(): Promise<void> {
    const { state, blobs } = this.#parts
    const blobsOf = ({ blob, remembered }: Checkpoint): readonly (Sha256 | undefined)[] => [blob, remembered]
    const kept = new Set<Sha256 | undefined>(withBytes(state).flatMap(blobsOf))
    kept.add(state.checkpointing.upload?.blob)
    const released = new Set(state.released.flatMap(blobsOf))
    for (const blob of released) if (!this.#released.has(blob)) kept.add(blob)
    this.#released = released
    const old = [...state.checkpoints, ...state.released].flatMap(blobsOf)
    const failed = [...this.#uploads]
      .filter(([, at]) => this.#parts.clock.awake() - at > UPLOAD_LIFE_MS)
      .map(([blob]) => blob)
    for (const blob of [...failed, ...old]) {
      if (blob === undefined || kept.has(blob)) continue
      this.#uploads.delete(blob)
      await blobs.delete(blob)
    }
  }

  async #stored(id: VersionId): Promise<VersionState | undefined> {
    const { state, blobs } = this.#parts
    const checkpoint = checkpointOf(state, id)
    const tidied = checkpoint?.blob !== undefined && !(await blobs.has(checkpoint.blob))
    return checkpoint === undefined || tidied ? undefined : this.#reading(checkpoint, () => this.load(checkpoint))
  }
}

/** Those that are known by their version, the oldest first. */
function remembered({ checkpoints, kept }: RunState): readonly Checkpoint[] {
  const older = kept.filter(({ version }) => !checkpoints.some((one) => one.version.id === version.id))
  return [...older, ...checkpoints].sort((a, b) => a.version.v - b.version.v)
}

function checkpointOf(state: RunState, id: VersionId): Checkpoint | undefined {
  return remembered(state).findLast(({ version }) => version.id === id)
}

const exportSlot = (job: JobId): string => `${job} export`
/** Apart, so that a reader of an older version does not take the newest away. */
const olderSlot = (job: JobId): string => `${job} older export`
const beginningSlot = (job: JobId): string => `${job} beginning`

function gone({ blob, version }: Pick<Checkpoint, 'blob' | 'version'>): GridError {
  return new GridError(
    'version-corrupt',
    `expected checkpoint ${version.v} in the data folder, got no blob ${blob}; restore it from a backup`,
  )
}

/** The bytes of a blob are not what was written, or are gone. */
export function isDamage(error: unknown): error is GridError {
  return isGridError(error) && (error.code === 'version-corrupt' || error.code === 'shard-corrupt')
}
