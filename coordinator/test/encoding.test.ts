// Encodings of whole versions: the same bytes in a thread as in place, and an event loop that goes on meanwhile.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  encodeVersionState,
  exportModel,
  initialVersionState,
  parameterLayout,
  parseModelSpec,
  readParameters,
  type VersionForm,
} from '@starling-grid/model'
import { genesis, jobId, type Sha256 } from '@starling-grid/protocol'
import { memoryBlobs } from '../src/blobs/memory.ts'
import { processClock } from '../src/clock.ts'
import { encoded } from '../src/host/encoding.ts'
import { KeptFiles } from '../src/host/kept-files.ts'
import { Versions } from '../src/host/versions.ts'
import { ParameterServer } from '../src/parameter-server/parameter-server.ts'
import { createRunState } from '../src/run/create.ts'
import { newestCheckpoint } from '../src/run/journal-replay.ts'
import { smallJob, startCoordinator, submit } from './fixture.ts'
import { turnsDuring } from './turns-during.ts'

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

/** Of a job with 1.1 million parameters; its blobs are in memory, so that no disk leaves turns to the loop. */
async function versionsOfWideJob() {
  const coordinator = await startCoordinator()
  const hidden = { type: 'linear', name: 'hidden', out: 1400 }
  const layers = [{ type: 'flatten' }, hidden, { type: 'linear', name: 'fc', out: 10 }]
  const { id } = await submit(coordinator.url, smallJob({ model: { name: 'wide', input: [1, 28, 28], layers } }))
  const { job } = coordinator.runs.find(id) ?? assert.fail()
  const server = new ParameterServer({ form: job.form, clipNorm: undefined, delayCompensation: undefined, cores: 1 })
  const state = createRunState(job.config)
  const parts = { clock: processClock, files: KeptFiles.inMemory(), onDamaged: () => assert.fail() }
  const versions = new Versions({ ...parts, job, state, blobs: memoryBlobs(), server })
  return { job, server, state, versions, version: state.chain.head }
}

/** That a copy of four MiB in pieces leaves at least; work in place leaves two at most, work in a thread thousands. */
const TURNS = 4

test('threat 24: while a large upload is checked, or a large version is read, the event loop goes on', async () => {
  const { job, state, versions, version } = await versionsOfWideJob()
  const content = initialVersionState(job.form.spec, job.form.optimizer, job.spec.seed)
  const bytes = encodeVersionState({ ...job.form, version, ...content })
  let blob: Sha256 | undefined
  const checked = await turnsDuring(async () => {
    blob = (await versions.accept(version, bytes.slice())).blob
  })
  const begun = await turnsDuring(() => versions.load(newestCheckpoint(state)))
  const read = await turnsDuring(async () =>
    assert.deepEqual(await versions.load({ ...newestCheckpoint(state), blob }), { version, ...content }),
  )
  assert.ok(Math.min(checked, begun, read) > TURNS, `${checked}, ${begun} and ${read} turns`)
})

test('threat 24: while a large version is copied for volunteers and checkpoints the event loop goes on', async () => {
  const { job, server, versions, version } = await versionsOfWideJob()
  await server.load({ version, ...initialVersionState(job.form.spec, job.form.optimizer, job.spec.seed) })
  const pulled = await turnsDuring(() => versions.parameters(version.id))
  const written = await turnsDuring(() => server.encode())
  await server.unload()
  assert.ok(Math.min(pulled, written) >= TURNS, `${pulled} and ${written} turns`)
})

test('a version that the parameter server writes over while it is copied is not answered in part', async () => {
  const { job, server, versions, version } = await versionsOfWideJob()
  const content = initialVersionState(job.form.spec, job.form.optimizer, job.spec.seed)
  await server.load({ version, ...content })
  const pulling = versions.parameters(version.id)
  server.parametersOf(version.id)?.parameters.fill(7)
  await server.unload()
  assert.deepEqual(readParameters((await pulling) ?? assert.fail(), job.form.layout), content.parameters)
})
