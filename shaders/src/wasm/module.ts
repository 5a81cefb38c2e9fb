// A WebAssembly module of functions over one imported memory, in the binary format of the specification.
import { MODULE_HEADER, section, SECTION, text, unsigned } from './binary.ts'
import { TYPE_CODES, type FunctionWriter } from './function.ts'

export const PAGE_BYTES = 65_536

export interface MemoryShape {
  readonly pages: number
  /** between threads */
  readonly shared: boolean
}

/** Functions are exported by their numbers, and take numbers alone. They import `host.memory`. */
export function moduleBytes(
  functions: readonly FunctionWriter[],
  { pages, shared }: MemoryShape,
): Uint8Array<ArrayBuffer> {
  const arities = [...new Set(functions.map(({ parameters }) => parameters.length))]
  const types = arities.map((arity) => [
    0x60,
    ...unsigned(arity),
    ...Array.from({ length: arity }, () => TYPE_CODES.i32),
    0,
  ])
  return Uint8Array.from([
    ...MODULE_HEADER,
    ...section(SECTION.types, types),
    ...section(SECTION.imports, [
      [...text('host'), ...text('memory'), 0x02, shared ? 0x03 : 0x01, ...unsigned(pages), ...unsigned(pages)],
    ]),
    ...section(
      SECTION.functions,
      functions.map(({ parameters }) => unsigned(arities.indexOf(parameters.length))),
    ),
    ...section(
      SECTION.exports,
      functions.map((_, i) => [...text(String(i)), 0x00, ...unsigned(i)]),
    ),
    ...section(
      SECTION.code,
      functions.map(({ body }) => body),
    ),
  ])
}
