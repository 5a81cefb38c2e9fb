// Encodings of whole versions: the same bytes in a thread as in place, and an event loop that goes on meanwhile.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  encodeVersionState,
  exportModel,
  initialVersionState,
  parameterLayout,
  parseModelSpec,
  type VersionForm,
} from '@starling-grid/model'
import { genesis, jobId } from '@starling-grid/protocol'
import { encoded } from '../src/host/encoding.ts'

const SEED = 3
const VERSION = genesis(jobId('a-job'), 'a'.repeat(64), SEED)

/** Two linear layers of about this many parameters. */
function formOf(parameters: number): VersionForm {
  const spec = parseModelSpec({
    name: 'wide',
    input: [100],
    layers: [
      { type: 'linear', name: 'hidden', out: Math.ceil(parameters / 110) },
      { type: 'linear', name: 'fc', out: 10 },
    ],
  })
  return { spec, layout: parameterLayout(spec), optimizer: { type: 'sgd', lr: 0.01, momentum: 0.9 } } as VersionForm
}

const contentOf = ({ spec, optimizer }: VersionForm) => initialVersionState(spec, optimizer, SEED)
const stateOf = (form: VersionForm): Uint8Array => encodeVersionState({ ...form, version: VERSION, ...contentOf(form) })

/** Turns of the event loop that pass while the work goes on. */
async function turnsDuring(work: () => Promise<unknown>): Promise<number> {
  let turns = 0
  let running = true
  const transition = (): void => {
    turns++
    if (running) setImmediate(transition)
  }
  setImmediate(transition)
  await work().finally(() => {
    running = false
  })
  return turns
}

for (const [what, parameters] of [
  ['a small model', 10_000],
  ['a large model, in a thread', 2_000_000],
] as const)
  test(`exports and version 0 of ${what} have the bytes that they have in place`, async () => {
    const form = formOf(parameters)
    const known = { accuracy: 0.5 }
    assert.deepEqual(
      await encoded({ type: 'export', form, version: VERSION, state: stateOf(form), known }),
      exportModel({ ...form, version: VERSION, parameters: contentOf(form).parameters, ...known }),
    )
    assert.deepEqual(await encoded({ type: 'seed', form, version: VERSION, seed: SEED }), stateOf(form))
  })

test('threat 24: while a large version is encoded the event loop goes on', async () => {
  const form = formOf(2_000_000)
  const state = stateOf(form)
  const turns = await turnsDuring(() => encoded({ type: 'export', form, version: VERSION, state, known: {} }))
  assert.ok(turns > 20, `${turns} turns; an encoding in place leaves none`)
})

test('a damaged version is refused with its code, from a thread as well', async () => {
  for (const parameters of [10_000, 2_000_000]) {
    const form = formOf(parameters)
    const state = stateOf(form).slice(0, -4)
    await assert.rejects(encoded({ type: 'export', form, version: VERSION, state, known: {} }), {
      code: 'version-corrupt',
    })
  }
})
