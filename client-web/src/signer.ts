// The key of this browser's volunteers: made by Web Crypto so that no script can read it, kept in IndexedDB. All tabs
// share it.
import { describeError, GridError, type Signer } from '@starling-grid/protocol'
import { readKept, keepFirst } from './kept-values.ts'

const NAME = 'volunteer-key'
const ALGORITHM = 'Ed25519'

let opened: Promise<CryptoKeyPair> | undefined

/** The same at every call, also where nothing is kept. @throws GridError 'no-key' when this browser has no Ed25519 */
export async function openSigner(): Promise<Signer> {
  const { publicKey, privateKey } = await openKeys()
  return { publicKey: new Uint8Array(await crypto.subtle.exportKey('raw', publicKey)), ...signerWith(privateKey) }
}

/** The window signs for the Worker, with a key that neither can read. @throws GridError 'no-key' */
export async function openPrivateKey(): Promise<CryptoKey> {
  return (await openKeys()).privateKey
}

export function signerWith(privateKey: CryptoKey): Pick<Signer, 'sign' | 'verify'> {
  return {
    sign: async (bytes) => new Uint8Array(await crypto.subtle.sign(ALGORITHM, privateKey, bytes)),
    async verify(publicKey, bytes, signature) {
      const key = await crypto.subtle.importKey('raw', publicKey, ALGORITHM, false, ['verify']).catch(() => undefined)
      return key !== undefined && crypto.subtle.verify(ALGORITHM, key, signature, bytes)
    },
  }
}

function openKeys(): Promise<CryptoKeyPair> {
  opened ??= keyPair().catch((error: unknown) => {
    opened = undefined
    throw error
  })
  return opened
}

async function keyPair(): Promise<CryptoKeyPair> {
  const kept = await readKept<CryptoKeyPair>(NAME)
  if (kept !== undefined) return kept
  // Without storage, as in some private windows, the key lasts as long as this page.
  const made = await makeKeyPair()
  return keepFirst(NAME, made)
}

async function makeKeyPair(): Promise<CryptoKeyPair> {
  try {
    return (await crypto.subtle.generateKey(ALGORITHM, false, ['sign', 'verify'])) as CryptoKeyPair
  } catch (cause) {
    throw new GridError(
      'no-key',
      `expected a browser with Ed25519 keys, got: ${describeError(cause)}; update it to Chrome or Edge 137, ` +
        'Firefox 129, Safari 17, or newer',
      { cause },
    )
  }
}
