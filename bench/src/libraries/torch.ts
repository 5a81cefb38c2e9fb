// PyTorch as a library under measurement, on the CPU or on a GPU through CUDA, in a process of its own that is spoken
// to in lines of JSON. Only a PyTorch with a BLAS worth the name takes part: its rate of a large matrix product is
// asked for first and shown.
import { spawn } from 'node:child_process'
import { appendFileSync, existsSync, mkdtempSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { fromBase64, toBase64 } from '@starling-grid/cli/browser'
import { parameterLayout } from '@starling-grid/model'
import { type Ask, conversation } from '../conversation.ts'
import type { Library, Missing, PreparedTask } from '../library.ts'
import { convInputs, matmulInputs, STEP_RATE, stepInputs, STEPS_COMPARED, type BenchTask } from '../task.ts'

export const PYTHON = process.env['STARLING_PYTHON'] ?? '/usr/bin/python3'
const SCRIPT = fileURLToPath(new URL('../../peers/torch_peer.py', import.meta.url))
const THREADS = 2
/**
 * GFLOP/s of a 1024 × 1024 product, the best of ten. Debian's reference BLAS gives 3–5 on a core that does 60 and more
 * with OpenBLAS.
 */
const HONEST_BLAS = 10
const NAME = 'pytorch'
/** A line of JSON holds no more: what is larger goes through a file. */
const MOST_SENT_FLOATS = 1 << 20

export type TorchDevice = 'cpu' | 'cuda'
export type Torch = Library & { close(): void }

/** A Python that answers questions. */
export interface AskedTorch {
  readonly name: string
  readonly version: string
  readonly adapter: string
  readonly ask: Ask
  close(): void
}

/** Why it is missing, where it is. */
export async function openTorch(device: TorchDevice = 'cpu'): Promise<Torch | Missing> {
  const torch = await askTorch(device)
  if ('reason' in torch) return torch
  return { ...torch, prepare: (task) => prepare(task, torch.ask) }
}

/** Why it is missing, where it is. */
export async function askTorch(device: TorchDevice = 'cpu'): Promise<AskedTorch | Missing> {
  if (!existsSync(PYTHON)) return { name: NAME, reason: `there is no ${PYTHON}` }
  const process = spawn(PYTHON, [SCRIPT, String(THREADS), device], { stdio: ['pipe', 'pipe', 'ignore'] })
  try {
    const ask = conversation(process)
    const { version, gflops, device: name } = await ask({ ask: 'hello' })
    const rate = `1024 × 1024 product: ${Number(gflops).toFixed(0)} GFLOP/s`
    if (!(Number(gflops) >= HONEST_BLAS)) {
      process.kill()
      return { name: NAME, reason: `its BLAS is the reference one (${rate}); install libopenblas0-pthread` }
    }
    return {
      name: NAME,
      version: String(version),
      adapter: device === 'cpu' ? `CPU, ${THREADS} threads, ${rate}` : `${String(name)} through CUDA, ${rate}`,
      ask,
      close: () => void process.kill(),
    }
  } catch (error) {
    process.kill()
    return {
      name: NAME,
      reason:
        `python3 has no usable torch (${error instanceof Error ? error.message : String(error)}); ` +
        'install python3-torch',
    }
  }
}

async function prepare(task: BenchTask, ask: Ask): Promise<PreparedTask> {
  const folder = mkdtempSync(join(tmpdir(), 'starling-torch-'))
  const { id } = await ask({ ask: 'prepare', task, tensors: tensorsOf(task, join(folder, 'tensors')) })
  rmSync(folder, { recursive: true })
  return {
    result: async () => new Float32Array(fromBase64(String((await ask({ ask: 'result', id }))['values'])).buffer),
    time: async (repeats) => Number((await ask({ ask: 'time', id, repeats }))['ms']),
    close: async () => void (await ask({ ask: 'close', id })),
  }
}

type SentTensor = { readonly shape: readonly number[] } & (
  | { readonly base64: string }
  /** bytes before it, and its elements */
  | { readonly file: string; readonly offset: number; readonly length: number }
)

/** `file`: where large ones are put one after the other. */
function tensorsOf(task: BenchTask, file: string): Readonly<Record<string, unknown>> {
  const sent = (values: Float32Array, shape: readonly number[]) => sentTensor(values, shape, file)
  switch (task.kind) {
    case 'matmul': {
      const { a, b } = matmulInputs(task)
      return { a: sent(a, [task.size, task.size]), b: sent(b, [task.size, task.size]) }
    }
    case 'conv2d-forward':
    case 'conv2d-backward': {
      const { samples, channels, out, side, kernel } = task
      const { x, weight, dy } = convInputs(task)
      return {
        x: sent(x, [samples, channels, side, side]),
        weight: sent(weight, [out, channels, kernel, kernel]),
        dy: sent(dy, [samples, out, side, side]),
      }
    }
    case 'step': {
      const { spec, parameters, x, y } = stepInputs(task)
      const named = parameterLayout(spec).entries.map(({ name, shape, offset, length }) => [
        name,
        sent(parameters.subarray(offset, offset + length), shape),
      ])
      const shape = [task.samples, ...spec.input]
      return {
        x: x instanceof Int32Array ? { shape, ids: [...x] } : sent(x, shape),
        y: [...y],
        parameters: Object.fromEntries(named),
        layers: spec.layers,
        lr: STEP_RATE,
        compared: STEPS_COMPARED,
      }
    }
    case 'chain':
      throw new Error('it runs on no adapter, so it has no dispatches')
    default:
      throw task satisfies never
  }
}

function sentTensor(values: Float32Array, shape: readonly number[], file: string): SentTensor {
  const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength)
  if (values.length <= MOST_SENT_FLOATS) return { shape, base64: toBase64(bytes) }
  const offset = existsSync(file) ? statSync(file).size : 0
  appendFileSync(file, bytes)
  return { shape, file, offset, length: values.length }
}
