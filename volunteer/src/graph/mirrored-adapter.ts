// Several devices of one machine, as people see them: "2 GPUs: A (60 %), B (40 %)". Pure.
import type { AdapterDescription, AdapterPart } from '@starling-grid/protocol'

/** Devices that are listed one by one; more are counted by name. */
const MOST_LISTED = 3

/** `shares`: of each, together 1 */
export function mirroredAdapter(
  adapters: readonly AdapterDescription[],
  shares: readonly number[],
): AdapterDescription {
  const parts = adapters.map(({ name, vendor, software }, i) => ({ name, vendor, software, share: shares[i] ?? 0 }))
  return {
    ...described(parts),
    executor: adapters[0]?.executor ?? 'webgpu',
    ...(adapters.every(({ f16 }) => f16 === true) ? { f16: true } : {}),
  }
}

/** A software adapter never passes for a GPU: one among them makes it a software adapter. */
export function described(
  parts: readonly AdapterPart[],
): Pick<AdapterDescription, 'name' | 'vendor' | 'software' | 'parts'> {
  const [vendor, ...others] = new Set(parts.map((part) => part.vendor))
  return {
    name: partsText(parts),
    vendor: vendor === undefined || others.length > 0 ? 'several vendors' : vendor,
    software: parts.some((part) => part.software),
    parts,
  }
}

function partsText(parts: readonly AdapterPart[]): string {
  const software = parts.filter((part) => part.software).length
  const kind = kindOf(parts.length, software)
  const named = parts.map((part) => ({
    name: part.software && software < parts.length ? `${part.name}, software` : part.name,
    share: part.share,
  }))
  const listed = parts.length > MOST_LISTED ? counted(named) : named
  const texts = listed.map(({ name, share }) => `${name} (${Math.round(100 * share)} %)`)
  return `${parts.length} ${kind}: ${texts.join(', ')}`
}

function kindOf(count: number, software: number): string {
  if (software === 0) return count === 1 ? 'GPU' : 'GPUs'
  const noun = count === 1 ? 'adapter' : 'adapters'
  return software === count ? `software ${noun}` : noun
}

type NamedShare = Pick<AdapterPart, 'name' | 'share'>

function counted(parts: readonly NamedShare[]): NamedShare[] {
  return [...new Set(parts.map(({ name }) => name))].map((name) => {
    const equal = parts.filter((part) => part.name === name)
    return { name: `${equal.length} × ${name}`, share: equal.reduce((sum, { share }) => sum + share, 0) }
  })
}
