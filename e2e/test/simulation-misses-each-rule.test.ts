// What the simulated world is worth. One rule of docs/RULES.md is broken in the sources of what ships; then a seed
// breaks an invariant. Where the world does not reach the rule, the nearest test fails.
import assert from 'node:assert/strict'
import { after, describe, test } from 'node:test'
import { mutate } from '../src/mutants/mutant.ts'
import { RULE_MUTANTS, type RuleMutant } from '../src/mutants/rules.ts'
import { Tree } from '../src/mutants/tree.ts'

/** Seeds that are tried when the one that was seen to show a mutant does not any more. */
const OTHER_SEEDS = 100
/** ms */
const LIMIT_MS = 5 * 60_000

const tree = Tree.plain()
after(() => tree.remove())

async function broken<T>(mutant: RuleMutant, task: () => Promise<T>): Promise<T> {
  const source = tree.read(mutant.file)
  tree.write(mutant.file, mutate(mutant, source))
  try {
    return await task()
  } finally {
    tree.write(mutant.file, source)
  }
}

describe('what ships, with one rule broken, breaks an invariant in the world', () => {
  for (const mutant of RULE_MUTANTS)
    if (mutant.world !== undefined) {
      const { seed, options } = mutant.world
      test(mutant.breaks, async (context) => {
        const others = Array.from({ length: OTHER_SEEDS }, (_, i) => i + 1)
        const hunt = { seeds: [seed, ...others], ...(options ? { options } : {}) }
        const found = await broken(mutant, () => tree.hunt(hunt, LIMIT_MS))
        assert.ok(found, `not seen with seed ${seed}, nor with ${OTHER_SEEDS} others`)
        context.diagnostic(`seed ${found.seed} breaks ${found.invariant}: ${found.text}`)
      })
    }
})

describe('what the world does not reach is noticed by the nearest test', () => {
  for (const mutant of RULE_MUTANTS)
    if (mutant.world === undefined)
      test(mutant.breaks, async (context) => {
        for (const file of tree.testsOf(mutant.tests)) {
          const outcome = await broken(mutant, () => tree.run(file))
          context.diagnostic(`${file}: ${outcome.verdict}: ${outcome.test ?? ''}`)
          assert.notEqual(outcome.verdict, 'unfit', 'it calls what is not there, which any test notices')
          if (outcome.verdict !== 'passed') return
        }
        assert.fail('no test noticed it')
      })
})
