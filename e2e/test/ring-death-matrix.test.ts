// Every member killed at every point of a step and of a ballot, in rings and direct exchanges of 2, 3 and 4: the step
// commits or is done again, each block is counted once, and all that live hold the same bytes. The simulation's
// invariants are checked after every event.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Cell, deathMatrix, nameOf, runCell } from '../src/simulation/death-matrix.ts'

/** Networks and speeds that each cell is tried with. */
const SEEDS = [1, 2, 3, 4, 5, 6]

function dieIn(cell: Cell): number {
  let steps = 0
  for (const seed of SEEDS) {
    const death = runCell(cell, seed)
    const where = `seed ${seed}: ${nameOf(cell)}`
    assert.equal(
      death.violation,
      undefined,
      death.violation === undefined
        ? ''
        : `${where}\n${death.violation.invariant}: ${death.violation.text}\n` +
            `${runCell(cell, seed, true).trace.join('\n')}`,
    )
    assert.equal(death.deaths, cell.point.victim === undefined ? 1 : 2, `${where}: nobody died`)
    const blocks = death.records.flatMap((record) => record.blocks)
    assert.equal(new Set(blocks).size, blocks.length, `${where}: a block twice`)
    assert.equal(blocks.length, death.scenario.config.epochs * death.scenario.config.blocks, `${where}: a block lost`)
    steps += death.records.length - death.step
  }
  return steps
}

for (const [exchange, plural] of [
  ['ring', 'rings'],
  ['direct', 'direct exchanges'],
] as const)
  for (const size of [2, 3, 4]) {
    const cells = [...deathMatrix(exchange)].filter((cell) => cell.size === size)
    test(`${cells.length} deaths in ${plural} of ${size} leave every block in the history once`, (context) => {
      const steps = cells.reduce((sum, cell) => sum + dieIn(cell), 0)
      assert.ok(steps > 0)
      context.diagnostic(`${steps} steps were committed after the deaths`)
    })
  }
