// The owner's token: given, or made at the first start and kept beside the data, readable by this user alone.
import { randomBytes } from 'node:crypto'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describeError, GridError } from '@starling-grid/protocol'

const TOKEN_BYTES = 32
const MIN_LENGTH = 16

export interface OwnerToken {
  readonly token: string
  /** the file that it was written to just now, so that it is shown once */
  readonly made: string | undefined
}

/** @throws GridError 'usage' when the given one is too short, 'folder-unwritable' */
export async function ownerToken(dataDir: string, given: string | undefined): Promise<OwnerToken> {
  if (given !== undefined) {
    if (given.length < MIN_LENGTH)
      throw new GridError('usage', `an owner token has at least ${MIN_LENGTH} characters, got ${given.length}`)
    return { token: given, made: undefined }
  }
  const file = join(dataDir, 'owner-token')
  const kept = await readFile(file, 'utf8').catch(() => '')
  if (kept.trim().length >= MIN_LENGTH) return { token: kept.trim(), made: undefined }
  const token = randomBytes(TOKEN_BYTES).toString('hex')
  try {
    await mkdir(dataDir, { recursive: true })
    await writeFile(file, `${token}\n`, { mode: 0o600 })
  } catch (cause) {
    throw new GridError(
      'folder-unwritable',
      `The data folder ${dataDir} cannot be written: ${describeError(cause)}. Name another folder with --data-dir.`,
      { cause },
    )
  }
  return { token, made: file }
}
