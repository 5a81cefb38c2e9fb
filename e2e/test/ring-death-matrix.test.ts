// Every member killed at every point of a step and of a ballot, in rings and direct exchanges of 2, 3 and 4. The step
// commits or is done again, each block is counted once, and all that live hold the same bytes. They are what ships, in
// the simulated world.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Cell, deathMatrix, nameOf, runCell } from '../src/world/death-matrix.ts'

/** Networks and speeds that each cell is tried with. */
const SEEDS = [1]
/** of the story of one that fails */
const TOLD_LINES = 80

async function dieIn(cell: Cell): Promise<number> {
  let steps = 0
  for (const seed of SEEDS) {
    const death = await runCell(cell, seed)
    const where = `seed ${seed}: ${nameOf(cell)}`
    const { violation } = death
    if (violation !== undefined) {
      const { story } = await runCell(cell, seed, true)
      assert.fail(`${where}\n${violation.invariant}: ${violation.text}\n${story.slice(-TOLD_LINES).join('\n')}`)
    }
    assert.equal(death.deaths, cell.point.victim === undefined ? 1 : 2, `${where}: nobody died`)
    const blocks = death.records.flatMap((record) => record.blocks)
    assert.equal(new Set(blocks).size, blocks.length, `${where}: a block twice`)
    assert.equal(blocks.length, death.scenario.shape.epochs * death.scenario.shape.blocks, `${where}: a block lost`)
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
    test(`${cells.length} deaths in ${plural} of ${size} leave every block in the history once`, async (context) => {
      let steps = 0
      for (const cell of cells) steps += await dieIn(cell)
      assert.ok(steps > 0)
      context.diagnostic(`${steps} steps were committed after the deaths`)
    })
  }
