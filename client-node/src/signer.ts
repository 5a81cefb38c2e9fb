// The key of this user's volunteers: a file that only the user can read. All processes of one user share it. Node's own
// crypto and not Web Crypto, which prints a warning about Ed25519 in some releases.
import {
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  randomBytes,
  sign,
  verify,
} from 'node:crypto'
import { chmod, link, mkdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { GridError, type Signer } from '@starling-grid/protocol'
import { cacheFolder } from './runtime/cache-folder.ts'

const FILE_NAME = 'volunteer-key.pem'
/** of the file and of a folder that is made for it: the user's own */
const FILE_MODE = 0o600
const FOLDER_MODE = 0o700
const OTHERS = 0o077

/** @throws GridError 'no-key' when the file can be neither read nor written */
export async function openSigner(file = join(cacheFolder(), FILE_NAME)): Promise<Signer> {
  const key = await readOrMake(file).catch((cause: unknown) => {
    throw new GridError(
      'no-key',
      `expected this volunteer's key in ${file}, got: ${textOf(cause)}; delete the file, ` +
        'or name a folder that can be written in STARLING_CACHE',
      { cause },
    )
  })
  return { publicKey: publicBytes(key), sign: async (bytes) => sign(null, bytes, key), verify: isSigned }
}

/** The key as a JSON Web Key, which Node reads ten times as fast as DER. */
async function isSigned(publicKey: Uint8Array, bytes: Uint8Array, signature: Uint8Array): Promise<boolean> {
  const x = Buffer.from(publicKey).toString('base64url')
  try {
    const key = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' })
    return verify(null, bytes, key, signature)
  } catch {
    return false // these bytes are no point of the curve
  }
}

async function readOrMake(file: string): Promise<KeyObject> {
  const pem = await readFile(file, 'utf8').catch(missing)
  if (pem === undefined) return make(file)
  if (((await stat(file)).mode & OTHERS) !== 0) await chmod(file, FILE_MODE)
  const key = createPrivateKey(pem)
  if (key.asymmetricKeyType !== 'ed25519') throw new Error(`expected an ed25519 key, got ${key.asymmetricKeyType}`)
  return key
}

/** Appears whole or not at all: of several processes that start at once the first one's key stays. */
async function make(file: string): Promise<KeyObject> {
  const { privateKey } = generateKeyPairSync('ed25519')
  const partial = `${file}.${process.pid}-${randomBytes(4).toString('hex')}`
  await mkdir(dirname(file), { recursive: true, mode: FOLDER_MODE })
  await writeFile(partial, privateKey.export({ format: 'pem', type: 'pkcs8' }), { mode: FILE_MODE })
  try {
    await link(partial, file)
    return privateKey
  } catch (error) {
    if (!isCode(error, 'EEXIST')) throw error
    return createPrivateKey(await readFile(file, 'utf8'))
  } finally {
    await rm(partial, { force: true })
  }
}

function publicBytes(key: KeyObject): Uint8Array {
  const { x = '' } = createPublicKey(key).export({ format: 'jwk' })
  return new Uint8Array(Buffer.from(x, 'base64url'))
}

function missing(error: unknown): undefined {
  if (!isCode(error, 'ENOENT')) throw error
}

function isCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code
}

function textOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause)
}
