// What leaves this machine of its adapter: who made it, as one of few classes, and what the coordinator plans with. The
// exact name, with the driver, tells machines apart and stays here.
import type { AdapterDescription } from '@starling-grid/protocol'
import { described } from './graph/mirrored-adapter.ts'

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

/** Characters of a name that the coordinator takes. */
const MOST_NAME = 120

export function toldAdapter({ name, vendor, software, executor, f16, parts }: AdapterDescription): AdapterDescription {
  const has = f16 === true ? { f16 } : {}
  if (parts === undefined) {
    const told = classOf(name, vendor)
    return { name: told, vendor: told, software, executor, ...has }
  }
  const classes = parts.map((part) => classOf(part.name, part.vendor))
  const told = described(parts.map((part, i) => ({ ...part, name: classes[i] ?? '', vendor: classes[i] ?? '' })))
  return { name: told.name.slice(0, MOST_NAME), vendor: told.vendor, software, executor, ...has }
}

function classOf(name: string, vendor: string): string {
  const row = CLASSES.find(([part]) => part.test(vendor)) ?? CLASSES.find(([part]) => part.test(name))
  return row?.[1] ?? 'another vendor'
}
