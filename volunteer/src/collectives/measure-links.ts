// Latency and bandwidth of a group's links, measured between neighbours all at once, as a ring uses them; the slowest
// decides. All ranks end with equal numbers, so that they choose equal algorithms from them.
import type { Clock } from '@starling-grid/protocol'
import type { LinkQuality } from './choose-algorithm.ts'

/** Small messages there and back: the fastest of them is the link, the others are what else the machine did. */
const PINGS = 8
/** Bytes of the large message: 20 ms at 50 MB/s, a few round trips on the internet. */
const PROBE_BYTES = 1024 * 1024

/** What is used of a group. */
export interface Measurable {
  readonly rank: number
  readonly size: number
  send(values: Uint8Array, to: number): Promise<void>
  recv(into: Uint8Array, from: number): Promise<Uint8Array>
  allReduce(values: Float32Array, options: { readonly op: 'max' }): Promise<Float32Array>
}

export async function measureLinks(group: Measurable, clock: Clock): Promise<LinkQuality> {
  const there = (group.rank + 1) % group.size
  const back = (group.rank + group.size - 1) % group.size
  const roundTrip = async (bytes: number): Promise<number> => {
    const begin = clock.now()
    // In this order: between two ranks both come from the same one, which asks before it answers.
    const asked = group.recv(new Uint8Array(bytes), back).then(() => group.send(new Uint8Array(1), back))
    const answered = group.recv(new Uint8Array(1), there)
    await Promise.all([group.send(new Uint8Array(bytes), there), answered, asked])
    return clock.now() - begin
  }
  let ping = Infinity
  for (let i = 0; i < PINGS; i++) ping = Math.min(ping, await roundTrip(1))
  const msPerByte = Math.max(0, (await roundTrip(PROBE_BYTES)) - ping) / PROBE_BYTES
  const [latencyMs = 0, slowest = 0] = await group.allReduce(Float32Array.of(ping / 2, msPerByte), { op: 'max' })
  return { latencyMs, bytesPerMs: 1 / Math.max(slowest, Number.MIN_VALUE) }
}
