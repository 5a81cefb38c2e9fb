// PyTorch's gloo as a peer of the all-reduce: as many processes, over TCP on the loopback, without encryption or
// framing.
import { spawn } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Ask, conversation } from './conversation.ts'
import { PYTHON } from './libraries/torch.ts'
import type { Missing } from './library.ts'

const SCRIPT = fileURLToPath(new URL('../peers/gloo_rank.py', import.meta.url))
const NAME = 'gloo'

export interface Gloo {
  readonly version: string
  /** ms that the slowest rank took for an all-reduce of so many f32 */
  order(numbers: number): Promise<number>
  close(): void
}

/** With its links open and its sums found right; or why it is missing. */
export async function openGloo(size: number): Promise<Gloo | Missing> {
  if (!existsSync(PYTHON)) return { name: NAME, reason: `there is no ${PYTHON}` }
  const folder = mkdtempSync(join(tmpdir(), 'starling-gloo-'))
  const processes = Array.from({ length: size }, (_, rank) =>
    spawn(PYTHON, [SCRIPT, String(rank), String(size), join(folder, 'store')], { stdio: ['pipe', 'pipe', 'ignore'] }),
  )
  const close = (): void => {
    for (const child of processes) child.kill()
    rmSync(folder, { recursive: true, force: true })
  }
  const asks = processes.map(conversation)
  try {
    const [hello] = await askAll(asks, { ask: 'hello' })
    return {
      version: `PyTorch ${String(hello?.['version'])}`,
      close,
      order: async (numbers) =>
        Math.max(...(await askAll(asks, { ask: 'reduce', numbers })).map((answer) => Number(answer['milliseconds']))),
    }
  } catch (error) {
    close()
    return {
      name: NAME,
      reason:
        `python3 has no usable torch.distributed (${error instanceof Error ? error.message : String(error)}); ` +
        'install python3-torch',
    }
  }
}

function askAll(asks: readonly Ask[], question: object): Promise<Readonly<Record<string, unknown>>[]> {
  return Promise.all(asks.map((ask) => ask(question)))
}
