// The owner's token: given, or made at the first start and kept beside the data, readable by this user alone.
import { randomBytes } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { GridError } from '@starling-grid/protocol'
import { keepSecret, requireOwn } from './own-modes.ts'

const TOKEN_BYTES = 32
const MIN_LENGTH = 16

export interface OwnerToken {
  readonly token: string
  /** the file that has it; undefined when it was given as it is */
  readonly file: string | undefined
  /** it was made just now, so that it is shown once */
  readonly isNew: boolean
  /** other users of the machine could read its file until now */
  readonly wasOpen: boolean
}

export interface GivenToken {
  readonly token?: string | undefined
  readonly tokenFile?: string | undefined
}

/** @throws GridError 'usage' when the given one is too short or its file cannot be read, 'folder-unwritable' */
export async function ownerToken(dataDir: string, { token, tokenFile }: GivenToken = {}): Promise<OwnerToken> {
  if (token !== undefined) return { token: requireLong(token), file: undefined, isNew: false, wasOpen: false }
  const file = tokenFile ?? join(dataDir, 'owner-token')
  if (tokenFile !== undefined) return { ...(await tokenIn(tokenFile)), file, isNew: false }
  const kept = (await readFile(file, 'utf8').catch(() => '')).trim()
  if (kept.length >= MIN_LENGTH) return { token: kept, file, isNew: false, wasOpen: await requireOwn(file) }
  return { token: await makeToken(dataDir, file), file, isNew: true, wasOpen: false }
}

/** Of a file that its user keeps. @throws GridError 'usage', 'folder-unwritable' when other users can read it */
export async function tokenIn(file: string): Promise<Pick<OwnerToken, 'token' | 'wasOpen'>> {
  const token = (await readFile(file, 'utf8').catch(() => '')).trim()
  if (token === '') throw new GridError('usage', `expected a token in ${file}, got no readable text; write one there`)
  return { token: requireLong(token), wasOpen: await requireOwn(file) }
}

function requireLong(token: string): string {
  if (token.length >= MIN_LENGTH) return token
  throw new GridError(
    'usage',
    `expected a token of at least ${MIN_LENGTH} characters, got ${token.length}; use a longer one`,
  )
}

/** @throws GridError 'folder-unwritable' */
async function makeToken(dataDir: string, file: string): Promise<string> {
  const token = randomBytes(TOKEN_BYTES).toString('hex')
  await keepSecret(dataDir, file, `${token}\n`)
  return token
}
