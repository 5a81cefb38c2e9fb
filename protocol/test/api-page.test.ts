// docs/openapi.json and the table of docs/HTTP.md say what the table of routes says.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { documentFile, documentOnDisk, httpPage, renewedHttp } from './api-page.ts'

test('docs/openapi.json is made of the table of routes; `npm run docs` writes it', () => {
  assert.equal(documentOnDisk(), documentFile())
})

test('the table of docs/HTTP.md is made of the table of routes; `npm run docs` writes it', () => {
  assert.equal(httpPage(), renewedHttp(httpPage()))
})
