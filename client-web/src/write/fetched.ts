// What a page fetches of a job for the visitor who looks at it: with the owner's token where there is one, and bounded.
import { describeError, GridError, refusalIn } from '@starling-grid/protocol'

/** Bytes of a refusal. */
const MOST_REFUSAL = 64 * 1024

export interface Fetching {
  /** of the owner */
  readonly token: string | undefined
  /** bytes that are believed and kept */
  readonly most: number
  /** what a visitor can do where there are more */
  readonly cure?: string
  /** bytes that are here, of all; total 0: not known */
  readonly onProgress?: (done: number, total: number) => void
}

/** @throws GridError what the coordinator refuses; 'message-too-large'; 'coordinator-lost' where no answer comes */
export async function fetched(path: string, { token, ...reading }: Fetching): Promise<Uint8Array> {
  const headers = token === undefined ? {} : { authorization: `Bearer ${token}` }
  const response = await fetch(path, { headers, redirect: 'error' }).catch(lost)
  if (!response.ok) throw refused(response.status, await bodyOf(response, { most: MOST_REFUSAL }))
  return bodyOf(response, reading)
}

async function bodyOf(response: Response, { most, cure, onProgress }: Omit<Fetching, 'token'>): Promise<Uint8Array> {
  const total = Number(response.headers.get('content-length') ?? 0)
  const reader = response.body?.getReader()
  const pieces: Uint8Array<ArrayBuffer>[] = []
  let length = 0
  const refuse = (bytes: number): never => {
    void reader?.cancel().catch(() => undefined)
    throw new GridError(
      'message-too-large',
      `expected at most ${most} bytes, got ${bytes}${cure === undefined ? '' : `; ${cure}`}`,
    )
  }
  if (total > most) refuse(total)
  for (;;) {
    const { done, value } = (await reader?.read().catch(lost)) ?? { done: true }
    if (done || value === undefined) return new Uint8Array(await new Blob(pieces).arrayBuffer())
    pieces.push(value)
    length += value.byteLength
    if (length > most) refuse(length)
    onProgress?.(length, total)
  }
}

function refused(status: number, body: Uint8Array): GridError {
  const { code, detail } = refusalIn(jsonOf(body)) ?? { code: 'coordinator-lost', detail: `HTTP ${status}` }
  return new GridError(code, detail)
}

function lost(cause: unknown): never {
  throw new GridError(
    'coordinator-lost',
    `expected an answer of the coordinator, got none (${describeError(cause)}); try again`,
    { cause },
  )
}

function jsonOf(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(bytes))
  } catch {
    return undefined
  }
}
