// Blobs as objects of a bucket, in any store that speaks Amazon's S3 protocol. Keys and addresses come from the
// environment variables that Amazon's own tools read.
import { Readable } from 'node:stream'
import { describeError, GridError, type Sha256, sha256Name, systemClock } from '@starling-grid/protocol'
import { AwsClient } from 'aws4fetch'
import { digestOf, isBlobName, requireDigest, requireIntactStream, requireName } from './blob-name.ts'
import type { BlobStore } from './blob-store.ts'
import type { Stored } from './stored.ts'

export interface S3Settings {
  readonly bucket: string
  /** before the name of each object, '' or with a slash at its end */
  readonly prefix: string
  /** of the store; Amazon's own of the region where it is absent */
  readonly endpoint?: string
  readonly region: string
  readonly accessKeyId: string
  readonly secretAccessKey: string
  readonly sessionToken?: string
  /** that a list asks for at once; absent: what the store gives */
  readonly keysAtOnce?: number
}

/** ms without an answer after which a request has failed; and for each megabyte that it carries */
const ANSWER_MS = 30_000
const MEGABYTE_MS = 2000
/** further attempts after what passes: no answer, or that of a busy store */
const RETRIES = 4
/** ms before the first of them; doubles */
const FIRST_RETRY_MS = 100
const PASSING = new Set([429, 500, 502, 503, 504])
/** bytes of an answer that lists objects, or that says what is wrong */
const MAX_TEXT_BYTES = 4 * 1024 * 1024
const TRUNCATED = '<IsTruncated>true</IsTruncated>'

/**
 * `s3://bucket/prefix`, with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, as needed, AWS_SESSION_TOKEN, AWS_REGION and
 * AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL of the environment. @throws GridError 'usage'
 */
export function readS3Url(url: string, environment: Readonly<Record<string, string | undefined>>): S3Settings {
  const match = /^s3:\/\/([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:\/([\w./-]*))?$/.exec(url)
  if (match === null)
    throw new GridError('usage', `expected s3://bucket or s3://bucket/prefix, got ${url}; correct the address`)
  const { AWS_ACCESS_KEY_ID: accessKeyId, AWS_SECRET_ACCESS_KEY: secretAccessKey, AWS_SESSION_TOKEN } = environment
  if (!accessKeyId || !secretAccessKey)
    throw new GridError(
      'usage',
      `expected keys for ${url}, got none; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment`,
    )
  const [, bucket = '', folder = ''] = match
  const endpoint = environment['AWS_ENDPOINT_URL_S3'] ?? environment['AWS_ENDPOINT_URL']
  return {
    bucket,
    prefix: folder === '' || folder.endsWith('/') ? folder : `${folder}/`,
    ...(endpoint === undefined ? {} : { endpoint: endpoint.replace(/\/+$/, '') }),
    region: environment['AWS_REGION'] ?? environment['AWS_DEFAULT_REGION'] ?? 'us-east-1',
    accessKeyId,
    secretAccessKey,
    ...(AWS_SESSION_TOKEN === undefined ? {} : { sessionToken: AWS_SESSION_TOKEN }),
  }
}

/** Looks at the bucket first. @throws GridError 'folder-unwritable' when it cannot be used with these keys */
export async function openS3Blobs(settings: S3Settings): Promise<BlobStore> {
  const bucket = new Bucket(settings)
  try {
    await bucket.page('')
  } catch (cause) {
    throw new GridError(
      'folder-unwritable',
      `expected the bucket ${settings.bucket}, got: ${describeError(cause)}; check its name, address and keys`,
      { cause },
    )
  }
  return s3Blobs(bucket)
}

function s3Blobs(bucket: Bucket): BlobStore {
  /** blobs that this process has found intact */
  const checked = new Set<Sha256>()
  return {
    async put(bytes) {
      const name = sha256Name(await digestOf(bytes))
      await bucket.put(name, bytes)
      return name
    },
    async get(name) {
      requireName(name)
      const answer = await bucket.get(name)
      const bytes = answer && new Uint8Array(await answer.arrayBuffer())
      if (bytes) requireDigest(name, await digestOf(bytes), `${bucket.name} (${bytes.byteLength} bytes)`)
      return bytes
    },
    async read(name) {
      requireName(name)
      const size = await bucket.size(name)
      if (size === undefined) return undefined
      const stored = storedInBucket(bucket, name, size)
      if (!checked.has(name)) await requireIntactStream(name, stored.open(0, size - 1), bucket.name)
      checked.add(name)
      return stored
    },
    async has(name) {
      requireName(name)
      return (await bucket.size(name)) !== undefined
    },
    async stat(name) {
      requireName(name)
      const bytes = await bucket.size(name)
      return bytes === undefined ? undefined : { bytes }
    },
    async *list() {
      for (let last = ''; ;) {
        const { keys, isLast } = await bucket.page(last)
        yield* keys.filter(isBlobName) // others may keep objects there, too
        last = keys.at(-1) ?? ''
        if (isLast || last === '') return
      }
    },
    async delete(name) {
      requireName(name)
      checked.delete(name)
      await bucket.delete(name)
    },
  }
}

function storedInBucket(bucket: Bucket, name: Sha256, bytes: number): Stored {
  async function* pieces(first: number, last: number): AsyncGenerator<Uint8Array> {
    if (last < first) return
    const answer = await bucket.get(name, { range: `bytes=${first}-${last}` })
    if (!answer?.body)
      throw new GridError('shard-corrupt', `expected blob ${name} in ${bucket.name}, got none; import it again`)
    for await (const piece of answer.body) yield piece as Uint8Array
  }
  return { bytes, open: (first, last) => Readable.from(pieces(first, last), { objectMode: false }) }
}

class Bucket {
  readonly name: string
  readonly #root: string
  readonly #prefix: string
  readonly #keysAtOnce: number | undefined
  readonly #client: AwsClient

  constructor({ bucket, prefix, endpoint, region, keysAtOnce, ...keys }: S3Settings) {
    // A store of one's own has the bucket in the path; Amazon's has it in the name of the host.
    this.#root =
      endpoint === undefined
        ? `https://${bucket}.s3.${region}.amazonaws.com`
        : `${endpoint}/${encodeURIComponent(bucket)}`
    this.#prefix = prefix
    this.#keysAtOnce = keysAtOnce
    this.name = `s3://${bucket}/${prefix}`
    this.#client = new AwsClient({ ...keys, region, service: 's3', retries: 0 })
  }

  /** The store checks the bytes against the name, which is signed as their hash. */
  async put(name: Sha256, bytes: Uint8Array): Promise<void> {
    const headers = { 'x-amz-content-sha256': name, 'content-type': 'application/octet-stream' }
    await this.#ask(this.#address(name), { method: 'PUT', body: bytes as Uint8Array<ArrayBuffer>, headers })
  }

  async get(name: Sha256, headers: Readonly<Record<string, string>> = {}): Promise<Response | undefined> {
    const answer = await this.#ask(this.#address(name), { headers: { ...headers } })
    return answer.status === 404 ? undefined : answer
  }

  async size(name: Sha256): Promise<number | undefined> {
    const answer = await this.#ask(this.#address(name), { method: 'HEAD' })
    return answer.status === 404 ? undefined : Number(answer.headers.get('content-length'))
  }

  async delete(name: Sha256): Promise<void> {
    await this.#ask(this.#address(name), { method: 'DELETE' })
  }

  /** Keys behind this one, without the prefix, in the order of the alphabet. */
  async page(after: string): Promise<{ readonly keys: readonly string[]; readonly isLast: boolean }> {
    const query = new URLSearchParams({ 'list-type': '2', prefix: this.#prefix })
    if (after !== '') query.set('start-after', this.#prefix + after)
    if (this.#keysAtOnce !== undefined) query.set('max-keys', String(this.#keysAtOnce))
    const answer = await this.#ask(`${this.#root}?${query}`)
    if (answer.status === 404) throw new GridError('disk-failed', `expected ${this.name}, got no such bucket; make it`)
    const text = await answer.text()
    if (text.length > MAX_TEXT_BYTES)
      throw new GridError('disk-failed', `expected a short list of ${this.name}, got ${text.length} characters`)
    // Keys of ours hold nothing that XML escapes.
    const keys = [...text.matchAll(/<Key>([^<]*)<\/Key>/g)].map(([, key = '']) => key.slice(this.#prefix.length))
    return { keys, isLast: !text.includes(TRUNCATED) }
  }

  #address(name: Sha256): string {
    return `${this.#root}/${this.#prefix}${name}`
  }

  /** An answer of success, or 404. @throws GridError 'disk-failed' */
  async #ask(url: string, request: RequestInit = {}): Promise<Response> {
    for (let attempt = 0; ; attempt++) {
      const { answer, trouble } = await this.#once(url, request)
      if (answer !== undefined && (answer.ok || answer.status === 404)) return answer
      if (attempt === RETRIES || (answer !== undefined && !PASSING.has(answer.status)))
        throw new GridError(
          'disk-failed',
          `expected an answer of ${this.name}, got: ${trouble}; check the store and the keys`,
        )
      await systemClock.sleep(FIRST_RETRY_MS * 2 ** attempt)
    }
  }

  async #once(url: string, request: RequestInit): Promise<{ readonly answer?: Response; readonly trouble: string }> {
    const limit = new AbortController()
    const bytes = request.body instanceof Uint8Array ? request.body.byteLength : 0
    const cancel = systemClock.timer(ANSWER_MS + (bytes / 1e6) * MEGABYTE_MS, () => limit.abort())
    try {
      const answer = await this.#client.fetch(url, { ...request, signal: limit.signal })
      if (answer.ok || answer.status === 404) return { answer, trouble: '' }
      return { answer, trouble: `status ${answer.status} ${codeOf(await answer.text())}` }
    } catch (error) {
      return { trouble: error instanceof Error && error.cause ? describeError(error.cause) : describeError(error) }
    } finally {
      cancel()
    }
  }
}

/** What the store says is wrong. */
function codeOf(text: string): string {
  return /<Code>(\w+)<\/Code>/.exec(text)?.[1] ?? ''
}
