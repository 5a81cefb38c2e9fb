// WebGPU's flag values (specification, "buffer usages", "map modes", "shader stages"). The TypeScript library has their
// types but not the global objects. In Node those exist only once a device was opened.

export const BUFFER_USAGE = {
  MAP_READ: 0x1,
  MAP_WRITE: 0x2,
  COPY_SRC: 0x4,
  COPY_DST: 0x8,
  UNIFORM: 0x40,
  STORAGE: 0x80,
} as const
export const MAP_READ_MODE = 0x1
export const MAP_WRITE_MODE = 0x2
export const COMPUTE_STAGE = 0x4
