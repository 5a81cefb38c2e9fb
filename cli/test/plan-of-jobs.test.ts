// `starling plan` of jobs that it advises: fewer machines, a text of its own, halves that not all compute.
import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { folder, jobFile, plan, planOf, type PlanJson, ROOT } from './plan-command.ts'

test('where lines cost more than machines help, the plan asks for fewer of them', { timeout: 120_000 }, async () => {
  const { status, stdout, stderr } = await plan('demo', '--with', '8 software adapters, mobile lines', '--json')
  assert.equal(status, 0, stderr)
  const json = JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as PlanJson
  assert.equal(json.best.volunteers, 1, 'one sends no gradients')
  assert.equal(json.own.volunteers, 8)
  assert.match(stdout, /`volunteers: \{ max: 1 \}`/)
})

test('the example of a GPT has a plan, with the text that it names and fewer steps', { timeout: 120_000 }, async () => {
  const text = join(folder, 'input.txt')
  await writeFile(text, 'to be, or not to be: that is the question.\nABCDEFGHIJKLMNOPQRSTUVWXYZ\n'.repeat(200))
  const job = join(ROOT, 'examples/nanogpt-shakespeare-char.yaml')
  const { status, stdout, stderr } = await plan(job, '--data', text, '--with', '3 desktops', '--steps', '50', '--json')
  assert.equal(status, 0, stderr)
  const json = JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as PlanJson
  assert.equal(json.own.steps, 50)
  assert.match(stdout, /assumed for a small GPU of its own/)
})

test('a plan says whose machines lack f16, and plans without them', { timeout: 120_000 }, async () => {
  for (const [name, line] of [
    ['requires', 'requires: { f16: true }'],
    ['precision', 'precision: f16'],
  ] as const) {
    const file = await jobFile(name, line, 'stop: { steps: 30 }')
    const crowd = '2 laptops at 200 samples/s, 3 software adapters, 1 desktop without f16, lab'
    const { json, stdout } = await planOf(file, crowd)
    assert.equal(json.own.volunteers, 2)
    assert.deepEqual(json.unfit, [
      { group: 1, count: 3, kind: 'software adapters', lacks: 'shader-f16' },
      { group: 2, count: 1, kind: 'desktop', lacks: 'shader-f16' },
    ])
    assert.match(stdout, /3 software adapters cannot serve: the job requires shader-f16/)
  }
  const { status, stderr } = await plan(join(folder, 'requires.yaml'), '--with', '3 software adapters')
  assert.equal(status, 2)
  assert.match(stderr, /expected at least 1 machines with shader-f16.*got 0 \(3 software adapters without shader-f16/)
})
