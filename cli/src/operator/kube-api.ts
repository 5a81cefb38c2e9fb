// The API server of Kubernetes over HTTP: five requests and one watch need no client library.
import { readFile } from 'node:fs/promises'
import { type IncomingMessage, request as plainRequest } from 'node:http'
import { request as tlsRequest } from 'node:https'
import { describeError, GridError } from '@starling-grid/protocol'
import {
  type Cluster,
  type ClusterEvent,
  ClusterRefusal,
  GONE,
  type ReadObject,
  type TrainingJobList,
} from './cluster.ts'
import { asTrainingJob, GROUP, PLURAL, type TrainingJob, type TrainingJobStatus, VERSION } from './training-job.ts'

/** ms for an answer; a watch lasts as long as the server lets it */
const ANSWER_MS = 30_000
/** s after which the server ends a watch: a connection that died unseen is noticed then */
const WATCH_SECONDS = 240
/** ms of silence after which a watch counts as dead */
const WATCH_SILENT_MS = (WATCH_SECONDS + 30) * 1000
/** bytes of an answer, or of one event: an object has at most 1.5 MiB */
const MOST_BYTES = 64 * 1024 * 1024
const MOST_LINE_BYTES = 8 * 1024 * 1024
const MERGE_PATCH = 'application/merge-patch+json'

/** Where a pod finds the API server and proves who it is. */
export const SERVICE_ACCOUNT = '/var/run/secrets/kubernetes.io/serviceaccount'

export interface KubeAddress {
  /** http or https origin */
  readonly url: string
  readonly namespace: string
  /** read for each request: the cluster renews it every hour */
  readonly tokenFile?: string | undefined
  /** PEM of the authority that signed its certificate */
  readonly ca?: string | undefined
}

interface KubeRequest {
  readonly method?: 'GET' | 'PATCH'
  readonly body?: object
  readonly signal?: AbortSignal
}

export class KubeApi implements Cluster {
  readonly #address: KubeAddress
  readonly #jobs: string

  constructor(address: KubeAddress) {
    this.#address = address
    this.#jobs = `/apis/${GROUP}/${VERSION}/namespaces/${address.namespace}/${PLURAL}`
  }

  async list(): Promise<TrainingJobList> {
    const { items = [], metadata = {} } = (await this.#ask(this.#jobs)) as {
      items?: readonly unknown[]
      metadata?: { resourceVersion?: unknown }
    }
    return { items: items.map(asTrainingJob), resourceVersion: String(metadata.resourceVersion ?? '') }
  }

  async *watch(resourceVersion: string, signal: AbortSignal): AsyncGenerator<ClusterEvent> {
    const query = new URLSearchParams({
      watch: 'true',
      allowWatchBookmarks: 'true',
      resourceVersion,
      timeoutSeconds: String(WATCH_SECONDS),
    })
    const answer = await this.#send(`${this.#jobs}?${query}`, { signal })
    answer.socket.setTimeout(WATCH_SILENT_MS, () => answer.destroy(new Error('the watch is silent')))
    try {
      for await (const line of linesOf(answer)) yield eventIn(line)
    } catch (cause) {
      if (cause instanceof ClusterRefusal || signal.aborted) throw cause
      throw new ClusterRefusal(0, `the watch of ${this.#address.url} broke off: ${describeError(cause)}`, { cause })
    } finally {
      answer.destroy()
    }
  }

  setFinalizers(object: ReadObject, finalizers: readonly string[]): Promise<TrainingJob> {
    return this.#patchJob(object, '', { metadata: { finalizers } })
  }

  setStatus(object: ReadObject, status: TrainingJobStatus): Promise<TrainingJob> {
    return this.#patchJob(object, '/status', { status })
  }

  async replicas(deployment: string): Promise<number> {
    const { spec } = (await this.#ask(this.#scaleOf(deployment))) as { spec?: { replicas?: unknown } }
    return Number(spec?.replicas ?? 0)
  }

  async setReplicas(deployment: string, replicas: number): Promise<void> {
    await this.#ask(this.#scaleOf(deployment), { method: 'PATCH', body: { spec: { replicas } } })
  }

  /** Refused with 409 when the object is another than the one that was read. */
  async #patchJob({ name, resourceVersion }: ReadObject, part: string, change: Patch): Promise<TrainingJob> {
    const body = { ...change, metadata: { ...change.metadata, resourceVersion } }
    return asTrainingJob(await this.#ask(`${this.#jobs}/${encodeURIComponent(name)}${part}`, { method: 'PATCH', body }))
  }

  #scaleOf(deployment: string): string {
    return `/apis/apps/v1/namespaces/${this.#address.namespace}/deployments/${encodeURIComponent(deployment)}/scale`
  }

  async #ask(path: string, asked: KubeRequest = {}): Promise<unknown> {
    const answer = await this.#send(path, { ...asked, signal: AbortSignal.timeout(ANSWER_MS) })
    return JSON.parse(await textOf(answer))
  }

  /** An answer of success, whose body is still to be read. @throws ClusterRefusal */
  async #send(path: string, { method = 'GET', body, signal }: KubeRequest): Promise<IncomingMessage> {
    const { url, ca, tokenFile } = this.#address
    const token = tokenFile === undefined ? undefined : (await readFile(tokenFile, 'utf8')).trim()
    const headers = {
      accept: 'application/json',
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      ...(body === undefined ? {} : { 'content-type': MERGE_PATCH }),
    }
    const open = url.startsWith('https:') ? tlsRequest : plainRequest
    const answer = await new Promise<IncomingMessage>((resolve, reject) => {
      const request = open(url + path, {
        method,
        headers,
        ...(ca === undefined ? {} : { ca }),
        ...(signal && { signal }),
      })
      request.once('error', reject)
      request.once('response', resolve)
      request.end(body === undefined ? undefined : JSON.stringify(body))
    }).catch((cause: unknown) => {
      throw new ClusterRefusal(0, `expected an API server at ${url}, got ${describeError(cause)}`, { cause })
    })
    const { statusCode = 0 } = answer
    if (statusCode >= 200 && statusCode < 300) return answer
    throw new ClusterRefusal(
      statusCode,
      `${method} ${path}: ${messageIn(await textOf(answer).catch(() => ''))} (HTTP ${statusCode})`,
    )
  }
}

interface Patch {
  readonly metadata?: object
  readonly status?: object
}

async function textOf(answer: IncomingMessage): Promise<string> {
  const pieces: Buffer[] = []
  let length = 0
  for await (const piece of answer) {
    length += (piece as Buffer).byteLength
    if (length > MOST_BYTES) throw new GridError('message-too-large', `expected at most ${MOST_BYTES} bytes, got more`)
    pieces.push(piece as Buffer)
  }
  return Buffer.concat(pieces).toString('utf8')
}

/** What the server says in words. */
function messageIn(text: string): string {
  try {
    const { message } = JSON.parse(text) as { message?: unknown }
    return typeof message === 'string' ? message : text.slice(0, 200)
  } catch {
    return text.slice(0, 200)
  }
}

async function* linesOf(answer: IncomingMessage): AsyncGenerator<string> {
  let rest = ''
  answer.setEncoding('utf8')
  for await (const piece of answer) {
    const lines = (rest + String(piece)).split('\n')
    rest = lines.pop() ?? ''
    if (rest.length > MOST_LINE_BYTES)
      throw new GridError('message-too-large', `expected an event of at most ${MOST_LINE_BYTES} bytes, got more`)
    yield* lines.filter((line) => line !== '')
  }
}

/** @throws ClusterRefusal of an ERROR event: 410, the version of the watch is forgotten */
function eventIn(line: string): ClusterEvent {
  const { type, object } = JSON.parse(line) as { type?: unknown; object?: unknown }
  switch (type) {
    case 'ADDED':
    case 'MODIFIED':
      return { type: 'changed', job: asTrainingJob(object) }
    case 'DELETED':
      return { type: 'deleted', job: asTrainingJob(object) }
    case 'BOOKMARK': {
      const { metadata } = object as { metadata?: { resourceVersion?: unknown } }
      return { type: 'bookmark', resourceVersion: String(metadata?.resourceVersion ?? '') }
    }
    default: {
      const { code = GONE, message = 'the watch ended' } = object as { code?: number; message?: string }
      throw new ClusterRefusal(code, message)
    }
  }
}
