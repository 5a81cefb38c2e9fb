// Rewrites how a shader reads and writes its storage arrays. Kernels are written once, for f32; they also run with
// values stored as f16, or with results multiplied by the loss scale. Kernels touch storage in two ways only: `x[i]` in
// an expression, and `x[i] = value;`. Sums in place (`+=`) are for gradients of parameters, which stay f32.

export interface StorageAccess {
  /** stored as f16 or, in groups of four, vec4h; arithmetic stays f32 */
  readonly half: boolean
  /** elements of the array are groups of four */
  readonly grouped: boolean
  /** what is stored is multiplied by run.loss_scale */
  readonly scaled: boolean
}

export function rewriteStorage(source: string, accesses: ReadonlyMap<string, StorageAccess>): string {
  if (accesses.size === 0) return source
  const access = new RegExp(`\\b(${[...accesses.keys()].join('|')})\\[`, 'g')
  let result = ''
  let at = 0
  for (let match = access.exec(source); match; match = access.exec(source)) {
    const [open, name = ''] = match
    const how = accesses.get(name)
    if (!how || match.index < at) continue
    const close = closingBracket(source, match.index + open.length - 1)
    const place = `${name}[${rewriteStorage(source.slice(match.index + open.length, close), accesses)}]`
    const assignment = /^\s*=(?!=)/.exec(source.slice(close + 1))
    if (/^\s*[-+*/]=/.test(source.slice(close + 1)) && how.half)
      throw new Error(`internal: ${name} is summed in place and cannot be stored as f16`)
    result += source.slice(at, match.index)
    if (assignment) {
      const start = close + 1 + assignment[0].length
      const end = source.indexOf(';', start)
      result += `${place} = ${stored(rewriteStorage(source.slice(start, end), accesses), how)}`
      at = end
    } else {
      result += how.half ? `${how.grouped ? 'vec4f' : 'f32'}(${place})` : place
      at = close + 1
    }
    access.lastIndex = at
  }
  return result + source.slice(at)
}

function stored(value: string, { half, grouped, scaled }: StorageAccess): string {
  const scaledValue = scaled ? `run.loss_scale * (${value.trim()})` : value.trim()
  return half ? `${grouped ? 'vec4h' : 'f16'}(${scaledValue})` : scaledValue
}

function closingBracket(source: string, open: number): number {
  let depth = 0
  for (let i = open; i < source.length; i++) {
    if (source[i] === '[') depth++
    if (source[i] === ']' && --depth === 0) return i
  }
  throw new Error('internal: a shader with a bracket that never closes')
}
