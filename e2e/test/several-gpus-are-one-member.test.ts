// A volunteer on several adapters (--gpus): one member of the ring, in every mode; refused before it joins where they
// are not there.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Grid } from '@starling-grid/cli'
import { ADAPTER_CHOICE, adapterEnvironment, allAdapters } from '@starling-grid/client-node'
import { finishesWhole, QUICK, smallJob, tinyJob } from './small-job.ts'

const { description } = await adapterEnvironment()
const skip =
  !description.includes('SwiftShader') && `two on one adapter are shown on SwiftShader, here is ${description}`
/** Tests are given one driver; this is the machine as it is. */
const { [ADAPTER_CHOICE]: _choice, VK_ICD_FILENAMES: _drivers, ...whole } = process.env
const { listed } = await allAdapters(true, whole)
const lacking = ['llvmpipe', 'SwiftShader'].filter((name) => !listed.some((adapter) => adapter.name.includes(name)))
const TWO = { name: 'two', gpus: 'swiftshader,swiftshader' } as const
const STEPS = 40

test('two adapters of a machine and a plain volunteer train in a ring of two', { skip }, async () => {
  const grid = await Grid.start({ timing: QUICK })
  try {
    const job = await grid.submit(smallJob({ stop: { steps: STEPS }, minVolunteers: 2 }))
    const two = grid.addVolunteer(TWO)
    grid.addVolunteer({ name: 'plain', executor: 'wasm', threads: 1 })
    const members = await grid.watch.waitFor('a ring of both', ({ run }) => {
      const ranked = run?.phase === 'ring' ? run.members.filter(({ rank }) => rank !== null) : []
      return ranked.length === 2 && ranked
    })
    const adapter = members.find(({ name }) => name === 'two')?.adapter
    assert.match(adapter?.name ?? '', /^2 software adapters: google \(\d+ %\), google \(\d+ %\)$/)
    assert.ok(two.lines.some((line) => /^adapters SwiftShader.* \(software\) and SwiftShader/.test(line)))
    const run = await finishesWhole(grid, job, STEPS)
    assert.equal(run.checkpoint?.members, 2)
    assert.ok(!two.lines.some((line) => line.includes('left out')), 'neither adapter failed')
    two.kill('SIGTERM')
    assert.equal(await two.ended, 0, 'its threads end with it')
  } finally {
    await grid.stop()
  }
})

test(
  'two adapters of two makers, each with a driver of its own, train as one member',
  { skip: lacking.length > 0 && `this machine lacks ${lacking.join(' and ')}` },
  async () => {
    const grid = await Grid.start({ timing: QUICK })
    try {
      const job = await grid.submit(tinyJob({ stop: { steps: STEPS }, minVolunteers: 2 }))
      const env = { [ADAPTER_CHOICE]: undefined, VK_ICD_FILENAMES: undefined }
      grid.addVolunteer({ name: 'two', gpus: 'lavapipe,swiftshader', env })
      grid.addVolunteer({ name: 'plain', executor: 'reference' })
      const adapter = await grid.watch.waitFor('both adapters', ({ run }) => {
        const two = run?.phase === 'ring' ? run.members.find(({ name }) => name === 'two') : undefined
        return two?.adapter?.name
      })
      assert.match(adapter, /^2 software adapters: mesa \(\d+ %\), google \(\d+ %\)$/)
      await finishesWhole(grid, job, STEPS)
    } finally {
      await grid.stop()
    }
  },
)

for (const mode of ['local', 'async'] as const)
  test(`two adapters of a machine train alone in mode ${mode}, and the loss falls`, { skip }, async () => {
    const grid = await Grid.start({ timing: QUICK })
    try {
      const local = mode === 'local' ? { local: { innerSteps: 3 } } : {}
      await grid.submit({ ...tinyJob({ stop: { steps: STEPS }, mode, minVolunteers: 1 }), ...local })
      grid.addVolunteer(TWO)
      await grid.watch.waitFor('the end', ({ run }) => run?.phase === 'finished' && run, 300_000)
      const losses = grid.watch.steps.map(({ loss }) => loss)
      assert.ok((losses.at(-1) ?? 9) < (losses[0] ?? 0), `the loss went from ${losses[0]} to ${losses.at(-1)}`)
    } finally {
      await grid.stop()
    }
  })

test('adapters that are not here are refused by name before the volunteer joins', { skip }, async () => {
  const grid = await Grid.start({ timing: QUICK })
  try {
    const volunteer = grid.addVolunteer({ name: 'two', gpus: 'geforce,swiftshader' })
    assert.equal(await volunteer.ended, 1)
    assert.match(volunteer.lines.join('\n'), /expected an adapter whose name contains "geforce", got SwiftShader/)
  } finally {
    await grid.stop()
  }
})
