import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { RunLog } from '../src/run-log.ts'

const folder = mkdtempSync(join(tmpdir(), 'starling-log-'))
after(() => rmSync(folder, { recursive: true }))

const step = (v: number, loss: number) => ({ v, loss, accuracy: 0, samples: 12, mode: 'ring' as const, at: 1000 * v })

test('a log has each step and validation once, and a rewound step again', () => {
  const file = join(folder, 'deep', 'log.jsonl')
  const log = new RunLog(file, { job: 'a' })
  const steps = [step(1, 4), step(2, 3)]
  log.follow({ steps, validations: [] })
  steps.push(step(3, 2.123456789))
  log.follow({
    steps,
    validations: [{ v: 3, epoch: 0, accuracy: 0.25, loss: 2.5, samples: 9, confirmed: true, at: 3500 }],
  })
  log.follow({ steps: steps.slice(0, 1), validations: [] })
  log.follow({ steps: [step(1, 4), step(2, 2.9)], validations: [] })
  assert.deepEqual(
    readFileSync(file, 'utf8')
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as unknown),
    [
      { job: 'a' },
      { step: 1, loss: 4, seconds: 0 },
      { step: 2, loss: 3, seconds: 1 },
      { step: 3, loss: 2.12346, seconds: 2 },
      { step: 3, validationLoss: 2.5, validationAccuracy: 0.25, seconds: 2.5 },
      { step: 2, loss: 2.9, seconds: 1 },
    ],
  )
})
