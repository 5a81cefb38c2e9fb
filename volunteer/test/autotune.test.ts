// Autotuning without a device: which variant a table of timings leads to, what is kept, and what a broken cache does.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { lenet5 } from '@starling-grid/model'
import { candidatesFor, PLAIN_TRAITS } from '@starling-grid/shaders'
import { tune } from '../src/gpu/autotune.ts'
import type { PrepareTrial } from '../src/gpu/stopwatch.ts'
import { buildGraph } from '../src/graph/build.ts'
import { fuseGraph } from '../src/graph/fuse.ts'
import type { ShardCache } from '../src/host.ts'

const CAPACITY = 64
const graph = buildGraph(lenet5())
const adapter = { name: 'pretend', vendor: 'nobody', software: true, executor: 'webgpu' } as const
const readText = async (url: URL) => url.pathname

/** Trials in which one variant is fast; counts those that were prepared. */
function trials(fast: string) {
  const counts = { prepared: 0, destroyed: 0 }
  const prepare: PrepareTrial = async (calls, choose) => {
    const [call] = calls
    assert.ok(call)
    const {
      candidate: { family, name },
    } = choose(call, CAPACITY)
    counts.prepared++
    return {
      run: async () => (`${family} ${name}` === fast ? 1 : 2),
      destroy: () => {
        counts.destroyed++
      },
    }
  }
  return { counts, request: { graph, capacity: CAPACITY, traits: PLAIN_TRAITS, adapter, readText, prepare } }
}

function memoryCache() {
  const entries = new Map<string, Uint8Array>()
  const cache: ShardCache = {
    get: async (name) => entries.get(name),
    put: async (name, bytes) => {
      entries.set(name, bytes)
    },
  }
  return { entries, cache }
}

const [product] = fuseGraph(graph).forward.filter(({ kernel }) => kernel === 'linear.forward')

function suiting() {
  assert.ok(product)
  return candidatesFor(product, CAPACITY, PLAIN_TRAITS)
    .filter(({ suits }) => suits)
    .map(({ family, name }) => `${family} ${name}`)
}

for (const wanted of suiting())
  test(`the variant that was fastest is chosen, and said to be measured: ${wanted}`, async () => {
    const { counts, request } = trials(wanted)
    const choose = await tune({ budgetMs: 60_000 }, request)
    assert.ok(product)
    const {
      candidate: { family, name },
      why,
    } = choose(product, CAPACITY)
    assert.equal(`${family} ${name}`, wanted)
    assert.match(why, /^measured [\d.]+ ms, the next [\d.]+ ms$/)
    assert.equal(counts.destroyed, counts.prepared)
  })

test('without time nothing is measured and the first guess stands', async () => {
  const { counts, request } = trials('register 4×4 w8')
  const choose = await tune({ budgetMs: 0 }, request)
  assert.ok(product)
  assert.equal(counts.prepared, 0)
  assert.match(choose(product, CAPACITY).why, /first guess/)
})

test('what was measured once is read from the cache, for this adapter and these kernels only', async () => {
  const { cache, entries } = memoryCache()
  await tune({ budgetMs: 60_000, cache }, trials('register 4×4 w8').request)
  const again = trials('register 8×8')
  const choose = await tune({ budgetMs: 60_000, cache }, again.request)
  assert.ok(product)
  assert.equal(again.counts.prepared, 0)
  assert.equal(choose(product, CAPACITY).candidate.name, '4×4 w8')
  const other = trials('register 8×8')
  await tune({ budgetMs: 60_000, cache }, { ...other.request, adapter: { ...adapter, name: 'another' } })
  assert.ok(other.counts.prepared > 0)
  assert.equal(entries.size, 2)
})

for (const [what, text] of [
  ['no JSON', '{'],
  ['a list', '[]'],
  ['wrong entries', '{"a":{"variant":1,"ms":2}}'],
] as const)
  test(`a cache entry that is ${what} is said to be damaged and measured anew`, async () => {
    const { cache, entries } = memoryCache()
    await tune({ budgetMs: 60_000, cache }, trials('register 4×4 w8').request)
    for (const name of entries.keys()) entries.set(name, new TextEncoder().encode(text))
    const said: string[] = []
    const again = trials('register 8×4 w8')
    await tune({ budgetMs: 60_000, cache, say: (line) => said.push(line) }, again.request)
    assert.ok(again.counts.prepared > 0)
    assert.match(said.join(), /damaged/)
  })
