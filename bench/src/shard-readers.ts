// A process that reads files over HTTP, as volunteers read shards: what it costs to read must not be that of a process
// that does other work. Takes one order a line and answers each with one line.
import { Agent, get } from 'node:http'
import { createInterface } from 'node:readline'

export interface ReadOrder {
  readonly urls: readonly string[]
  /** that read at once */
  readonly readers: number
  /** how often each reads all of them */
  readonly times: number
}

async function read({ urls, readers, times }: ReadOrder): Promise<{ readonly bytes: number; readonly ms: number }> {
  const agent = new Agent({ keepAlive: true, maxSockets: readers })
  const began = performance.now()
  let bytes = 0
  const reader = async (): Promise<void> => {
    for (let i = 0; i < times; i++) for (const url of urls) bytes += await lengthOf(url, agent)
  }
  await Promise.all(Array.from({ length: readers }, reader))
  agent.destroy()
  return { bytes, ms: performance.now() - began }
}

/** Reads and counts it. */
function lengthOf(url: string, agent: Agent): Promise<number> {
  return new Promise((resolve, reject) => {
    get(url, { agent }, (answer) => {
      if (answer.statusCode !== 200) return reject(new Error(`expected a shard, got ${answer.statusCode}: ${url}`))
      let bytes = 0
      answer.on('data', (chunk: Buffer) => {
        bytes += chunk.byteLength
      })
      answer.once('end', () => resolve(bytes))
      answer.once('error', reject)
    }).once('error', reject)
  })
}

for await (const line of createInterface({ input: process.stdin })) {
  const answer = await read(JSON.parse(line) as ReadOrder).catch((error: unknown) => ({ error: String(error) }))
  process.stdout.write(`${JSON.stringify(answer)}\n`)
}
process.exit()
