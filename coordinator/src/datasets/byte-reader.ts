// Takes exact numbers of bytes from a stream of chunks. Holds no more than was asked for and one chunk.
export interface ByteReader {
  /** The next `count` bytes; fewer only at the end of the stream. */
  take(count: number): Promise<Uint8Array>
  atEnd(): Promise<boolean>
}

export function byteReader(chunks: AsyncIterable<Uint8Array>): ByteReader {
  const iterator = chunks[Symbol.asyncIterator]()
  let rest = new Uint8Array(0)
  const refill = async () => {
    while (rest.byteLength === 0) {
      const { done, value } = await iterator.next()
      if (done) return false
      rest = new Uint8Array(value)
    }
    return true
  }
  return {
    async take(count) {
      const taken = new Uint8Array(count)
      let filled = 0
      while (filled < count && (await refill())) {
        const part = rest.subarray(0, count - filled)
        taken.set(part, filled)
        filled += part.byteLength
        rest = rest.subarray(part.byteLength)
      }
      return taken.subarray(0, filled)
    },
    atEnd: async () => !(await refill()),
  }
}
