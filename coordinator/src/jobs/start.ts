// The parameters that a job begins with (`from`). They are those of a file inside the data root or of a checkpoint of
// the owner's other job, matched with the model. The job keeps a copy of its own.
import { open } from 'node:fs/promises'
import { type ModelSpec, startFrom } from '@starling-grid/model'
import {
  describeError,
  isGridError,
  MAX_STATE_BYTES,
  type JobSpec,
  type MistakesError,
  type Path,
  readSafetensors,
  type Safetensors,
  type Sha256,
  shown,
  type StartRule,
} from '@starling-grid/protocol'
import type { BlobStore } from '../blobs/blob-store.ts'
import { readWhole } from '../blobs/whole-file.ts'
import { insideRoot, OUTSIDE_HINT } from '../datasets/data-root.ts'
import { mistaken } from './mistaken.ts'

/** Bytes of a file of parameters, which is read whole: those of the largest version. */
const MOST_BYTES = MAX_STATE_BYTES

export interface StartParts {
  readonly blobs: BlobStore
  /** folder that jobs may read files of */
  readonly dataRoot: string
  /** versions of a job of the same owner */
  versionsOf(job: string): KeptVersions | undefined
}

/** Versions of a job (host/versions.ts). */
export interface KeptVersions {
  /** the oldest first */
  kept(): Promise<readonly { readonly v: number; readonly sha256: Sha256 }[]>
}

export interface FoundStart {
  /** of version 0, as f32 */
  readonly parameters: Uint8Array
  /** the rule with the version that `latest` was; absent: an imported model is the start */
  readonly from?: StartRule
}

/**
 * Undefined: the seed makes version 0.
 * @throws MistakesError 'job-invalid' with what is wrong with the source, or with each tensor that does not match
 */
export async function startOf(
  { from, seed }: JobSpec,
  model: ModelSpec,
  parts: StartParts,
): Promise<FoundStart | undefined> {
  if (from === undefined) return undefined
  const { except } = from
  const found = from.job === undefined ? await ofFile(from, parts) : await ofJob(from.job, from, parts)
  const as = from.job === undefined ? 'file' : 'job'
  const { parameters } = startFrom(model, { seed, as, ...(except ? { except } : {}) }, found.source)
  return { parameters: new Uint8Array(parameters.buffer), from: found.from }
}

interface Source {
  readonly source: Safetensors
  readonly from: StartRule
}

async function ofFile(from: StartRule, { dataRoot }: StartParts): Promise<Source> {
  const { file = '' } = from
  const path = await insideRoot(file, dataRoot)
  if (path === undefined)
    throw mistaken(['from', 'file'], {
      expected: 'a file inside the folder that this coordinator reads data from',
      found: shown(file),
      hint: OUTSIDE_HINT,
    })
  return { source: tensorsIn(await contentOf(path, file), ['from', 'file'], shown(file)), from }
}

/** @throws MistakesError 'job-invalid' of what is no file, is too large, or cannot be read */
async function contentOf(path: string, named: string): Promise<Uint8Array> {
  const refused = (found: string, hint: string): MistakesError =>
    mistaken(['from', 'file'], { expected: `a safetensors file of at most ${MOST_BYTES} bytes`, found, hint })
  const handle = await open(path).catch((error: unknown) => {
    throw refused(`${shown(named)} (${describeError(error)})`, 'name one that can be read')
  })
  try {
    const about = await handle.stat()
    if (!about.isFile()) throw refused(`${shown(named)}, which is no file`, 'name the file itself')
    if (about.size > MOST_BYTES) throw refused(`${about.size} bytes`, 'leave out of it what the model does not have')
    return await readWhole(handle)
  } finally {
    await handle.close()
  }
}

async function ofJob(id: string, from: StartRule, { versionsOf, blobs }: StartParts): Promise<Source> {
  const versions = versionsOf(id)
  if (versions === undefined)
    throw mistaken(['from', 'job'], {
      expected: 'a job of the same owner on this coordinator',
      found: shown(id),
      hint: '`starling job list` names them',
    })
  const { version = 'latest' } = from
  const kept = await versions.kept()
  const found = version === 'latest' ? kept.at(-1) : kept.findLast(({ v }) => v === version)
  const bytes = found && (await blobs.get(found.sha256))
  if (found === undefined || bytes === undefined)
    throw mistaken(['from', 'version'], {
      expected:
        kept.length === 0 ? 'a job that has a checkpoint' : `latest or one of ${kept.map(({ v }) => v).join(', ')}`,
      found: kept.length === 0 ? `${shown(id)}, which has none yet` : String(version),
      hint: kept.length === 0 ? 'submit again after its first' : 'only these are kept',
    })
  return {
    source: tensorsIn(bytes, ['from', 'job'], `version ${found.v} of ${id}`),
    from: { ...from, version: found.v },
  }
}

function tensorsIn(bytes: Uint8Array, path: Path, what: string): Safetensors {
  try {
    return readSafetensors(bytes)
  } catch (error) {
    if (!isGridError(error)) throw error
    const found = `${what}: ${describeError(error)}`
    throw mistaken(path, { expected: 'a safetensors file', found, hint: 'take one that PyTorch or Starling wrote' })
  }
}
