// How a program finds its coordinator and proves that it is the owner's: an address and a token. The token stands
// neither on a command line nor in an address, where process lists, histories and logs would keep it.
import { readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { pinCertificate } from '@starling-grid/client-node/pinned-certificate'
import { DEFAULT_PORT, describeError, GridError, isLoopbackUrl } from '@starling-grid/protocol'
import { CoordinatorApi } from './coordinator-api.ts'

/** What others may do with a file of a token: nothing. */
const OTHERS = 0o077
/** What fits into a header. */
const TOKEN = /^[\x21-\x7e]{1,1000}$/

export interface ConnectionOptions {
  /** of the coordinator (STARLING_URL, the one of `dataDir`, or http://localhost:8790) */
  readonly url?: string
  /** of its owner (the one in `tokenFile`, STARLING_TOKEN, or the one in `dataDir`) */
  readonly token?: string
  /** of mode 600, with the token */
  readonly tokenFile?: string
  /** of a coordinator on this machine (starling-data) */
  readonly dataDir?: string
  /** of the certificate of a coordinator with --https, as it printed at its start */
  readonly fingerprint?: string
}

/** What commands and programs use of a coordinator. @throws GridError 'usage' */
export async function openApi(
  options: ConnectionOptions = {},
  env: NodeJS.ProcessEnv = process.env,
): Promise<CoordinatorApi> {
  const { dataDir = 'starling-data', fingerprint } = options
  const given = options.url ?? (env['STARLING_URL'] || undefined)
  const url = originOf(given ?? (await readCard(dataDir)) ?? `http://localhost:${DEFAULT_PORT}`)
  if (fingerprint !== undefined) await pinCertificate(url, fingerprint)
  const token = await tokenFor(url, { ...options, dataDir }, env)
  if (token !== undefined && url.startsWith('http:') && !isLoopbackUrl(url))
    process.stderr.write(
      `Warning: the owner token goes to ${url} unencrypted; use the https address of the coordinator ` +
        'where others may listen.\n',
    )
  return new CoordinatorApi({ url, token })
}

/** The owner's token: from the caller, the named file, the environment, or the coordinator on this machine. */
async function tokenFor(
  url: string,
  { token, tokenFile, dataDir }: ConnectionOptions & { readonly dataDir: string },
  env: NodeJS.ProcessEnv,
): Promise<string | undefined> {
  if (token !== undefined) return requireToken(token, '`token`')
  if (tokenFile !== undefined) return requireToken(await readSecret(tokenFile), tokenFile)
  const given = env['STARLING_TOKEN']
  if (given !== undefined && given !== '') return requireToken(given, 'STARLING_TOKEN')
  const own = join(dataDir, 'owner-token')
  // The token of a coordinator on this machine goes to no other machine.
  if (!isLoopbackUrl(url) || (await modeOf(own)) === undefined) return undefined
  return requireToken(await readSecret(own), own)
}

/** @throws GridError 'usage' for a file that is not there, or that others may read */
async function readSecret(file: string): Promise<string> {
  const mode = await modeOf(file)
  if (mode === undefined)
    throw new GridError('usage', `expected a file with the owner token, got ${file}, which is not there; name another`)
  if (process.platform !== 'win32' && (mode & OTHERS) !== 0)
    throw new GridError(
      'usage',
      `expected ${file} to be readable by you alone, got mode ${(mode & 0o777).toString(8)}; ` +
        `run \`chmod 600 ${file}\`, and take a new token if others may have read it`,
    )
  return readFile(file, 'utf8').catch((cause: unknown) => {
    throw new GridError('usage', `expected a readable ${file}, got: ${describeError(cause)}; name another`, { cause })
  })
}

async function modeOf(file: string): Promise<number | undefined> {
  return stat(file).then(
    ({ mode }) => mode,
    () => undefined,
  )
}

function requireToken(text: string, where: string): string {
  const token = text.trim()
  if (TOKEN.test(token)) return token
  throw new GridError('usage', `expected an owner token in ${where}, got no single word of it; write the token there`)
}

/** Where the coordinator of a data folder says that it listens; undefined when none runs there. */
async function readCard(dataDir: string): Promise<string | undefined> {
  try {
    const { url } = JSON.parse(await readFile(join(dataDir, 'coordinator.json'), 'utf8')) as { url?: unknown }
    return typeof url === 'string' ? url : undefined
  } catch {
    return undefined
  }
}

/** @throws GridError 'usage' when it is no http address, or holds a name, a token or a path */
export function originOf(text: string): string {
  const written = text.includes('://') ? text : `http://${text}`
  const url = URL.canParse(written) ? new URL(written) : undefined
  if (url === undefined || (url.protocol !== 'http:' && url.protocol !== 'https:'))
    throw new GridError('usage', `expected the coordinator's address such as http://localhost:8790, got "${text}"`)
  if (url.username !== '' || url.password !== '' || url.search !== '' || url.hash !== '')
    throw new GridError(
      'usage',
      `expected an address without a token or other parts, got more after ${url.origin}; ` +
        'put the token into STARLING_TOKEN or --token-file',
    )
  return url.origin
}
