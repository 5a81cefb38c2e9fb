// Lifetimes → buffers: values that are never needed at the same time share a buffer.
// A value has a buffer to itself while it lives, because WebGPU forbids binding one buffer for reading and for writing at once.

export interface Life {
  readonly bytes: number
  /** index of the first pass that uses the value, −1 when it is there before the first */
  readonly first: number
  /** index of the last pass that uses it, Infinity when it is read after the last */
  readonly last: number
}

export interface MemoryPlan {
  /** bytes of each buffer */
  readonly buffers: readonly number[]
  /** life → its buffer */
  readonly assignment: readonly number[]
}

/** Largest first, each into the first buffer that is free for its whole life: what it leaves unused is small. */
export function assignBuffers(lives: readonly Life[]): MemoryPlan {
  const buffers: { bytes: number; lives: Life[] }[] = []
  const assignment = new Array<number>(lives.length).fill(-1)
  const largestFirst = [...lives.entries()].sort(([, a], [, b]) => b.bytes - a.bytes)
  for (const [index, life] of largestFirst) {
    const found = buffers.findIndex(buffer => buffer.lives.every(other => apart(life, other)))
    assignment[index] = found >= 0 ? found : buffers.push({ bytes: life.bytes, lives: [] }) - 1
    buffers[assignment[index] ?? -1]?.lives.push(life)
  }
  return { buffers: buffers.map(({ bytes }) => bytes), assignment }
}

function apart(a: Life, b: Life): boolean {
  return a.last < b.first || b.last < a.first
}
