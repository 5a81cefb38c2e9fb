// What others learn of a machine's adapter.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { toldAdapter } from '../src/told-adapter.ts'

const adapters: readonly (readonly [name: string, vendor: string, told: string])[] = [
  ['NVIDIA GeForce RTX 4090 (driver 560.35.03)', 'nvidia', 'nvidia'],
  ['AMD Radeon RX 7900 XTX (RADV NAVI31)', '', 'amd'],
  ['Intel(R) Arc(TM) A770 Graphics (DG2)', 'intel', 'intel'],
  ['Apple M3 Max', 'apple', 'apple'],
  ['llvmpipe (LLVM 15.0.6, 256 bits)', 'mesa', 'mesa'],
  ['SwiftShader Device (Subzero)', 'google', 'google'],
  ['plain TypeScript on the CPU', 'starling', 'starling'],
  ['Frobnicator 3000, serial 4711', 'Frob Works of Halle', 'another vendor'],
]

for (const [name, vendor, told] of adapters)
  test(`threat 56: of "${name}" others learn "${told}", and whether a GPU stands behind it`, () => {
    assert.deepEqual(toldAdapter({ name, vendor, software: false, executor: 'webgpu' }), {
      name: told,
      vendor: told,
      software: false,
      executor: 'webgpu',
    })
  })
