// Codecs of floats, which members use between each other and towards the coordinator.
export { type Codec, type KeptNumbers, largestIn, type Movable, requireBytes, scratchFloats } from './codec.ts'
export { concatenated } from './concatenated.ts'
export { decodeF16, encodeF16, f16Codec } from './encode-f16.ts'
export { decodeInt8, encodeInt8, INT8_BLOCK, int8Codec, type Rounding } from './encode-int8.ts'
export { scaledF16Codec } from './encode-scaled-f16.ts'
export { decodeSparse2, encodeSparse2, SPARSE2_CHUNK, sparse2Codec } from './encode-sparse2.ts'
export { placesOfLargest } from './kth-largest.ts'
