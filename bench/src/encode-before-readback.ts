// What a gradient on a GPU costs until it can be sent. Either it is read back whole and encoded on the CPU, or it is
// encoded on the GPU and read back small. Equal bytes both ways, which is checked first.
import { readFile } from 'node:fs/promises'
import { openGpu } from '@starling-grid/client-node'
import { random32 } from '@starling-grid/protocol'
import { type AdapterEncoding, GpuEncoding, RingCodec } from '@starling-grid/volunteer/testing'
import { type BenchRow, race } from './row.ts'
import type { SuiteOptions } from './suite.ts'

const NUMBERS = 1_000_000
/** floats of a frame, as the ring cuts them */
const FRAME_BYTES = 60 * 1024

export async function encodeBeforeReadback({ adapter, rounds, log }: SuiteOptions): Promise<BenchRow[]> {
  const gpu = await openGpu({ adapter })
  const rows: BenchRow[] = []
  for (const encoding of ['f16', 'int8'] as const) {
    const task = await openTask(encoding, gpu.device)
    await task.check()
    const name = `own gradient of ${NUMBERS / 1e6} M floats to ${encoding} bytes on the CPU`
    rows.push(
      await race(
        { name, adapter: gpu.description.name, unit: 'ms', better: 'less' },
        timed(task.onGpu),
        { 'encoded on the CPU': timed(task.onCpu), 'read back as f32': timed(task.plain) },
        rounds,
      ),
    )
    log(`${name}: ${rows.at(-1)?.ours ?? 0} ms`)
    task.close()
  }
  gpu.close()
  return rows
}

async function openTask(encoding: AdapterEncoding, device: GPUDevice) {
  const codec = new RingCodec(encoding)
  const chunk = codec.chunkFloats(FRAME_BYTES)
  const lengths = Array.from({ length: Math.ceil(NUMBERS / chunk) }, (_, i) => Math.min(chunk, NUMBERS - i * chunk))
  const gpu = await GpuEncoding.open({ device, readText: (url) => readFile(url, 'utf8') }, encoding, lengths)
  const random = random32(1)
  gpu.load(Float32Array.from({ length: NUMBERS }, () => random() / 2 ** 31 - 1))
  const onCpu = async (): Promise<Uint8Array[]> => {
    const values = await gpu.plain()
    const lost = new Float32Array(NUMBERS)
    return lengths.map((length, i) =>
      codec.encode(values.subarray(i * chunk, i * chunk + length), lost.subarray(i * chunk, i * chunk + length), false),
    )
  }
  const check = async (): Promise<void> => {
    const [found, wanted] = [await gpu.encode(), await onCpu()]
    if (!wanted.every((bytes, i) => Buffer.from(bytes).equals(Buffer.from(found[i] ?? []))))
      throw new Error(`the GPU's ${encoding} bytes are not the CPU's`)
  }
  return { onGpu: () => gpu.encode(), onCpu, plain: () => gpu.plain(), check, close: () => gpu.close() }
}

function timed(work: () => Promise<unknown>): () => Promise<number> {
  return async () => {
    const start = performance.now()
    await work()
    return performance.now() - start
  }
}
