// A process that is spoken to in JSON: one question at a time, one line each way.
import type { ChildProcessByStdio } from 'node:child_process'
import { createInterface } from 'node:readline'
import type { Readable, Writable } from 'node:stream'

export type Ask = (question: object) => Promise<Readonly<Record<string, unknown>>>

/** @throws Error what the process answered as `error`, or that it ended */
export function conversation(process: ChildProcessByStdio<Writable, Readable, null>): Ask {
  const lines = createInterface({ input: process.stdout })[Symbol.asyncIterator]()
  process.on('error', () => undefined)
  process.stdin.on('error', () => undefined)
  return async (question) => {
    process.stdin.write(`${JSON.stringify(question)}\n`)
    const { value, done } = await lines.next()
    if (done === true) throw new Error('the process ended')
    const answer = JSON.parse(String(value)) as Record<string, unknown>
    if (answer['error'] !== undefined) throw new Error(String(answer['error']))
    return answer
  }
}
