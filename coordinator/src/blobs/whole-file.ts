// A file read whole, however large: Node's own readFile ends at 2 GiB.
import { open } from 'node:fs/promises'
import type { FileHandle } from 'node:fs/promises'

/** Bytes of one read: Node takes fewer than 2 GiB. */
const PART_BYTES = 256 * 1024 * 1024

export async function readWholeFile(path: string): Promise<Uint8Array> {
  const file = await open(path)
  try {
    return await readWhole(file)
  } finally {
    await file.close()
  }
}

/** Of a file that is open, from its beginning. One that shrinks meanwhile ends where it then ends. */
export async function readWhole(file: FileHandle): Promise<Uint8Array> {
  const bytes = new Uint8Array((await file.stat()).size)
  let at = 0
  while (at < bytes.length) {
    const { bytesRead } = await file.read(bytes, at, Math.min(PART_BYTES, bytes.length - at), at)
    if (bytesRead === 0) return bytes.subarray(0, at)
    at += bytesRead
  }
  return bytes
}
