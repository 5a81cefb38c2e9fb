// docs/JOBS.md and docs/job.schema.json say what the schema says, field by field.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { mistakesOf } from '../src/mistakes.ts'
import { JOB_FIELDS } from './job-fields.ts'
import { jobFields, jobsPage, renewedJobs, schemaFile, schemaOnDisk } from './job-page.ts'

test('the table of docs/JOBS.md is that of the schema; `npm run docs` writes it', () => {
  assert.equal(jobsPage(), renewedJobs(jobsPage()))
})

test('docs/job.schema.json is the schema with its meanings; `npm run docs` writes it', () => {
  assert.equal(schemaOnDisk(), schemaFile())
})

test('every field has a row, every row a field, and each example and default is taken', () => {
  const fields = jobFields()
  assert.deepEqual(Object.keys(JOB_FIELDS).sort(), fields.map(({ path }) => path).sort())
  for (const { path, schema, isRequired } of fields) {
    const row = JOB_FIELDS[path]
    assert.ok(row && row.about.length > 0, path)
    assert.deepEqual(mistakesOf(schema, row.example), [], `the example of ${path}`)
    assert.equal(row.default === undefined, isRequired, `${path} has a default exactly when it may be left out`)
    if (row.default !== undefined && typeof row.default !== 'object')
      assert.deepEqual(mistakesOf(schema, row.default), [], `the default of ${path}`)
  }
})
