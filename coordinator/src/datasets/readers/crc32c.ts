// CRC-32C (Castagnoli), and the form of it that TFRecord stores. Source: RFC 3720, appendix B.4; TensorFlow's crc32c.h.

/** Reflected polynomial. */
const POLYNOMIAL = 0x82f63b78
const MASK = 0xa282ead8
const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let rest = byte
  for (let bit = 0; bit < 8; bit++) rest = rest & 1 ? (rest >>> 1) ^ POLYNOMIAL : rest >>> 1
  return rest
})

export function crc32c(bytes: Uint8Array): number {
  let rest = 0xffffffff
  for (let i = 0; i < bytes.length; i++) rest = (TABLE[(rest ^ (bytes[i] ?? 0)) & 0xff] ?? 0) ^ (rest >>> 8)
  return (rest ^ 0xffffffff) >>> 0
}

/** A checksum of data that holds checksums itself is turned and moved. */
export function maskedCrc32c(bytes: Uint8Array): number {
  const sum = crc32c(bytes)
  return (((sum >>> 15) | (sum << 17)) + MASK) >>> 0
}
