// WebAssembly's binary format: numbers, lists and sections, as its specification writes them. Knows no instruction.

/** "\0asm", version 1 */
export const MODULE_HEADER = [0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00] as const
export const SECTION = { types: 1, imports: 2, functions: 3, memory: 5, exports: 7, code: 10 } as const

/** LEB128, as the format writes every unsigned number. */
export function unsigned(value: number): number[] {
  const bytes: number[] = []
  let rest = value
  do {
    bytes.push(rest > 127 ? (rest & 0x7f) | 0x80 : rest)
    rest = Math.floor(rest / 128)
  } while (rest > 0)
  return bytes
}

export function list(items: readonly (readonly number[])[]): number[] {
  return [...unsigned(items.length), ...items.flat()]
}

export function section(id: number, items: readonly (readonly number[])[]): number[] {
  const content = list(items)
  return [id, ...unsigned(content.length), ...content]
}

/** ASCII. */
export function text(value: string): number[] {
  return [...unsigned(value.length), ...Array.from(value, (letter) => letter.charCodeAt(0))]
}
