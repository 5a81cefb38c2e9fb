// docs/job.schema.json as an editor uses it: it takes the models of all examples, and marks what the checks refuse.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { test } from 'node:test'
import { lenet5, parseModelSpec } from '@starling-grid/model'
import { Ajv } from 'ajv'
import { parse } from 'yaml'

const ROOT = new URL('../../', import.meta.url)
const schema = JSON.parse(readFileSync(new URL('docs/job.schema.json', ROOT), 'utf8')) as {
  readonly properties: Record<string, object>
  readonly definitions: object
}
const ajv = new Ajv({ strict: false })
const takesJob = ajv.compile(schema)
const takesModel = ajv.compile({ ...schema.properties['model'], definitions: schema.definitions })

test('the schema takes every example, with what its model says', () => {
  const files = readdirSync(new URL('examples/', ROOT)).filter((name) => name.endsWith('.yaml'))
  assert.ok(files.length > 5)
  for (const name of files) {
    const job: unknown = parse(readFileSync(new URL(`examples/${name}`, ROOT), 'utf8'))
    assert.ok(takesJob(job), `${name}: ${ajv.errorsText(takesJob.errors)}`)
  }
  assert.ok(takesModel(JSON.parse(JSON.stringify(lenet5()))), ajv.errorsText(takesModel.errors))
})

test('the schema marks attributes that the checks refuse', () => {
  const linear = { type: 'linear', name: 'fc', out: 10 }
  const model = (...layers: object[]) => ({ input: [4], layers })
  const residual = { type: 'residual', layers: [linear] }
  const good = [
    model(linear),
    model({ ...linear, bias: false }, residual),
    { base: 'smol', context: 64, lora: { rank: 4 } },
  ]
  for (const one of good) assert.ok(takesModel(one), JSON.stringify(one))
  const bad = [
    { layers: [linear] },
    model(),
    model({ ...linear, out: 'ten' }),
    model({ type: 'linear', name: 'fc' }),
    model({ ...linear, biass: true }),
    model({ type: 'lineer', name: 'fc', out: 10 }),
    model({ ...residual, layers: [{ ...linear, out: 0 }] }),
    { ...model(linear), loss: 'hinge' },
    { base: 'smol' },
    { base: 'smol', context: 64, lora: { rank: 0 } },
  ]
  for (const one of bad) {
    assert.ok(!takesModel(one), JSON.stringify(one))
    if (!('base' in one)) assert.throws(() => parseModelSpec(one), { code: 'model-invalid' }, JSON.stringify(one))
  }
})
