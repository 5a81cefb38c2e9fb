// A process that reads files over HTTP, as volunteers read shards: what it costs to read must not be that of a process
// that does other work. It reads as cheaply as it can, all answers into one buffer: Node's HTTP client would take more
// processor time for a byte than a server does, and then it is the client that is measured. Takes one order a line and
// answers each with one line.
import { connect, type Socket } from 'node:net'
import { createInterface } from 'node:readline'

/**
 * For all reads, which are forgotten at once. It stays in the processor's cache: with a MiB for each connection a byte
 * took half as much time again to read.
 */
const BUFFER = Buffer.allocUnsafeSlow(64 * 1024)
const END_OF_HEAD = '\r\n\r\n'

export interface ReadOrder {
  readonly urls: readonly string[]
  /** that read at once */
  readonly readers: number
  /** how often each reads all of them */
  readonly times: number
}

async function read({ urls, readers, times }: ReadOrder): Promise<{ readonly bytes: number; readonly ms: number }> {
  const began = performance.now()
  let bytes = 0
  const reader = async (): Promise<void> => {
    const connection = await HttpReader.open(urls[0] ?? '')
    let own = 0 // `bytes += await …` would forget what others read meanwhile
    for (let i = 0; i < times; i++) for (const url of urls) own += await connection.lengthOf(url)
    bytes += own
    connection.close()
  }
  await Promise.all(Array.from({ length: readers }, reader))
  return { bytes, ms: performance.now() - began }
}

/** Reads one answer after the other, counts its bytes and forgets them. */
class HttpReader {
  readonly #socket: Socket
  /** what came of the answer's head; undefined: it is whole */
  #head: string | undefined
  #length = 0
  /** bytes of the body that are still to come */
  #left = 0
  #done: (bytes: number) => void = () => undefined
  #failed: (error: Error) => void = () => undefined

  static async open(url: string): Promise<HttpReader> {
    const reader = new HttpReader(new URL(url))
    await new Promise<void>((resolve, reject) => reader.#socket.once('connect', resolve).once('error', reject))
    return reader
  }

  private constructor({ hostname, port }: URL) {
    const onread = { buffer: BUFFER, callback: (count: number) => this.#read(BUFFER.subarray(0, count)) }
    this.#socket = connect({ host: hostname, port: Number(port), onread })
    this.#socket.on('error', (error) => this.#failed(error))
    this.#socket.on('close', () => this.#failed(new Error('expected an answer, got the end of the connection')))
  }

  lengthOf(url: string): Promise<number> {
    const { host, pathname, search } = new URL(url)
    this.#head = ''
    this.#socket.write(`GET ${pathname}${search} HTTP/1.1\r\nhost: ${host}${END_OF_HEAD}`)
    return new Promise((resolve, reject) => {
      this.#done = resolve
      this.#failed = reject
    })
  }

  close(): void {
    this.#failed = () => undefined
    this.#socket.destroy()
  }

  #read(bytes: Buffer): true {
    if (this.#head === undefined) this.#left -= bytes.byteLength
    else this.#readHead(bytes)
    if (this.#head === undefined && this.#left === 0) this.#done(this.#length)
    return true
  }

  #readHead(bytes: Buffer): void {
    this.#head += bytes.toString('latin1')
    const end = this.#head?.indexOf(END_OF_HEAD) ?? -1
    if (end < 0) return
    const head = this.#head?.slice(0, end) ?? ''
    this.#length = Number(/^content-length: (\d+)$/im.exec(head)?.[1])
    if (!/^HTTP\/1.1 200 /.test(head) || !(this.#length > 0))
      return this.#failed(new Error(`expected a shard and its length, got: ${head.slice(0, 200)}`))
    this.#left = this.#length - ((this.#head?.length ?? 0) - end - END_OF_HEAD.length)
    this.#head = undefined
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const answer = await read(JSON.parse(line) as ReadOrder).catch((error: unknown) => ({ error: String(error) }))
  process.stdout.write(`${JSON.stringify(answer)}\n`)
}
process.exit()
