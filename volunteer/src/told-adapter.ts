// What leaves this machine of its adapter: who made it, as one of few classes, and what the coordinator plans with. The
// exact name, with the driver, tells machines apart and stays here.
import type { AdapterDescription } from '@starling-grid/protocol'

/** A part of the name or vendor → its class. */
const CLASSES: readonly (readonly [part: RegExp, vendor: string])[] = [
  [/swiftshader|google/i, 'google'],
  [/llvmpipe|lavapipe|mesa/i, 'mesa'],
  [/nvidia|geforce|quadro|tesla/i, 'nvidia'],
  [/amd|ati\b|radeon/i, 'amd'],
  [/intel/i, 'intel'],
  [/apple/i, 'apple'],
  [/qualcomm|adreno/i, 'qualcomm'],
  [/\barm\b|mali/i, 'arm'],
  [/microsoft/i, 'microsoft'],
  [/starling/i, 'starling'],
]

export function toldAdapter({ name, vendor, software, executor, f16 }: AdapterDescription): AdapterDescription {
  const row = CLASSES.find(([part]) => part.test(vendor)) ?? CLASSES.find(([part]) => part.test(name))
  const told = row?.[1] ?? 'another vendor'
  return { name: told, vendor: told, software, executor, ...(f16 === true ? { f16 } : {}) }
}
