import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gpt, parseModelSpec, takesTokens, tokenVocabulary } from '@starling-grid/model'
import { isGridError } from '@starling-grid/protocol'

const table = { type: 'embedding', name: 'e', vocab: 11, channels: 4 }
const model = (...layers: object[]) => parseModelSpec({ input: [6], layers, loss: 'mse' })

test('a model says how many tokens it knows', () => {
  assert.equal(tokenVocabulary(gpt({ blocks: 1, heads: 1, channels: 4, context: 6, vocab: 13 })), 13)
  assert.equal(tokenVocabulary(model({ type: 'flatten' }, table)), 11)
  assert.equal(
    tokenVocabulary(model({ type: 'parallel', branches: [[table], [{ ...table, name: 'f', vocab: 7 }]] })),
    7,
  )
  assert.equal(takesTokens(model({ type: 'relu' })), false)
})

test('ids are not computed with, and what is computed is no ids', () => {
  const refused = (pattern: RegExp, ...layers: object[]) =>
    assert.throws(
      () => model(...layers),
      (error) => isGridError(error) && error.code === 'model-invalid' && pattern.test(error.message),
    )
  refused(/layer 1 `embedding` expects token ids and gets what other layers computed/, { type: 'relu' }, table)
  refused(/layer 1 `embedding` expects token ids/, table, { ...table, name: 'f' })
  refused(/layer 0\.1\.0 `linear` expects numbers and gets token ids/, {
    type: 'parallel',
    combine: 'concat',
    branches: [[table, { type: 'flatten' }], [{ type: 'linear', name: 'a', out: 3 }]],
  })
  refused(/layer 0 `residual` expects numbers and gets token ids/, {
    type: 'residual',
    layers: [table, { type: 'linear', name: 'a', out: 1 }, { type: 'flatten' }],
  })
})
