import assert from 'node:assert/strict'
import { test } from 'node:test'
import { digest, versionId, type VersionRef } from '@starling-grid/protocol'
import { encodeVersionState, initialVersionState, parameterLayout, parseModelSpec, type VersionForm } from '@starling-grid/model'
import { applyUpdate, clipGlobalNorm, createOptimizerState, meanGradient } from '@starling-grid/shaders'
import { ParameterServer, readGradient } from '../src/parameter-server/parameter-server.ts'

const spec = parseModelSpec({ input: [6], layers: [{ type: 'linear', name: 'fc', out: 4 }] })
const form: VersionForm = { spec, layout: parameterLayout(spec), optimizer: { type: 'sgd', lr: 0.1, momentum: 0.9 } }
const { total } = form.layout
const TARGETS = 7

const ref = (v: number): VersionRef => ({ v, id: versionId(v.toString(16).padStart(64, '0')) })
const initial = () => initialVersionState(spec, form.optimizer, 3)
const sumOf = (step: number): Float32Array => Float32Array.from({ length: total }, (_, i) => Math.sin(step * total + i))

function serverAt0(clipNorm?: number): ParameterServer {
  const server = new ParameterServer(form, clipNorm)
  server.load({ version: ref(0), ...initial() })
  return server
}

test('pushes make the same bytes as the same steps of a ring member', () => {
  const server = serverAt0(0.5)
  let { parameters, optimizerState } = initial()
  for (let v = 1; v <= 30; v++) {
    server.apply({ sum: sumOf(v), targets: TARGETS, damping: 1, version: ref(v) })
    const mean = new Float32Array(total)
    meanGradient(sumOf(v), TARGETS, mean)
    clipGlobalNorm(mean, 0.5)
    const [next, nextState] = [new Float32Array(total), createOptimizerState(form.optimizer, total)]
    applyUpdate(form.optimizer, optimizerState, parameters, mean, next, nextState)
    ;[parameters, optimizerState] = [next, nextState]
  }
  const { version, bytes } = server.encode()
  assert.deepEqual(version, ref(30))
  assert.equal(digest(bytes), digest(encodeVersionState({ ...form, version: ref(30), parameters, optimizerState })))
})

test('parameters of recent versions are there under their id, older ones are gone, and none changes', () => {
  const server = serverAt0()
  const seen: Float32Array[] = []
  for (let v = 1; v <= 40; v++) {
    server.apply({ sum: sumOf(v), targets: TARGETS, damping: 1, version: ref(v) })
    seen[v] = (server.parametersOf(ref(v).id)?.parameters ?? assert.fail()).slice()
  }
  assert.equal(server.parametersOf(ref(20).id), undefined)
  for (let v = 30; v <= 40; v++) assert.deepEqual(server.parametersOf(ref(v).id)?.parameters, seen[v])
  server.unload()
  assert.equal(server.head, undefined)
})

test('one push of enormous gradients moves the parameters no further than a few usual ones', () => {
  const moved = (scale: number): number => {
    const server = serverAt0()
    for (let v = 1; v <= 20; v++) server.apply({ sum: sumOf(v), targets: TARGETS, damping: 1, version: ref(v) })
    const before = (server.parametersOf(ref(20).id)?.parameters ?? assert.fail()).slice()
    server.apply({ sum: sumOf(21).map((value) => value * scale), targets: TARGETS, damping: 1, version: ref(21) })
    const after = server.parametersOf(ref(21).id)?.parameters ?? assert.fail()
    return Math.hypot(...after.map((value, i) => value - (before[i] ?? 0)))
  }
  assert.ok(moved(1e6) < 8 * moved(1), `${moved(1e6)} against ${moved(1)}`)
})

test('a stale push counts less', () => {
  const server = serverAt0()
  const before = (server.parametersOf(ref(0).id)?.parameters ?? assert.fail()).slice()
  server.apply({ sum: new Float32Array(total).fill(TARGETS), targets: TARGETS, damping: 0.5, version: ref(1) })
  const after = server.parametersOf(ref(1).id)?.parameters ?? assert.fail()
  after.forEach((value, i) => assert.equal(value, Math.fround((before[i] ?? 0) - Math.fround(Math.fround(0.1) * 0.5))))
})

test('a gradient of another length, or with one NaN or infinity, is refused', () => {
  const bytes = (values: Float32Array): Uint8Array => new Uint8Array(values.buffer)
  assert.deepEqual(readGradient(bytes(sumOf(1)), total), sumOf(1))
  assert.throws(() => readGradient(bytes(sumOf(1)).subarray(1), total), { code: 'gradient-shape' })
  assert.throws(() => readGradient(new Uint8Array(0), total), { code: 'gradient-shape' })
  for (const poison of [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY])
    assert.throws(() => readGradient(bytes(sumOf(1).fill(poison, total - 1)), total), { code: 'gradient-not-finite' })
})
