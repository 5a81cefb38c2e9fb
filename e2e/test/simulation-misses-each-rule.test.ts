// What the simulation is worth: with one rule of docs/RULES.md switched off, or one shell broken, a run breaks an
// invariant.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { type Rule, SWITCHABLE_RULES } from '@starling-grid/protocol'
import { firstCaught } from '../src/simulation/campaign.ts'
import { SHELL_MUTANTS, type ShellMutant } from '../src/simulation/scenario.ts'
import { explain } from '../src/simulation/simulate.ts'

/** Seeds of runs with off-ring members within which A1 must be missed. */
const OFF_RING_SEEDS_TO_CATCH = 300
/** Seeds within which a rule that is switched off must be missed; most need fewer than ten. */
const SEEDS_TO_CATCH = 3000
/**
 * Where to begin with rules that few seeds miss: just before one that was seen to. Any other within as many seeds will
 * do, too.
 */
const RARELY_MISSED: Partial<Record<Rule, number>> = {
  'R3-equal': 550,
  R4: 146,
  R7: 456,
  'R7-source': 369,
  'R12-moves': 110,
  A7: 95,
  A5: 57,
  A6: 70,
  A1: 18,
}

describe('a shell that is broken is noticed', () => {
  for (const [mutant, promise] of Object.entries(SHELL_MUTANTS) as [ShellMutant, string][])
    test(`${mutant}: ${promise}`, (context) => {
      const caught = firstCaught([], SEEDS_TO_CATCH, { mutant })
      assert.ok(caught, `not noticed in ${SEEDS_TO_CATCH} seeds`)
      context.diagnostic(
        `seed ${caught.scenario.seed} breaks ${caught.violation?.invariant}: ${caught.violation?.text}`,
      )
    })
})

describe('a rule that is switched off is missed', () => {
  for (const rule of Object.keys(SWITCHABLE_RULES) as Rule[])
    if (rule !== 'R9' && rule !== 'A1')
      test(`${rule}: ${SWITCHABLE_RULES[rule]}`, (context) => {
        const caught = firstCaught([rule], SEEDS_TO_CATCH, { first: RARELY_MISSED[rule] ?? 1 })
        assert.ok(caught, `not missed in ${SEEDS_TO_CATCH} seeds`)
        context.diagnostic(
          `seed ${caught.scenario.seed} breaks ${caught.violation?.invariant}: ${caught.violation?.text}`,
        )
      })

  test(`A1: ${SWITCHABLE_RULES.A1}`, (context) => {
    const caught = firstCaught(['A1'], OFF_RING_SEEDS_TO_CATCH, { offRing: true, first: RARELY_MISSED.A1 ?? 1 })
    assert.ok(caught, `not missed in ${OFF_RING_SEEDS_TO_CATCH} seeds with off-ring members`)
    context.diagnostic(`seed ${caught.scenario.seed} breaks ${caught.violation?.invariant}: ${caught.violation?.text}`)
  })

  // R9 is the member's own check of what R8 promises, so it can only be missed where R8 is broken as well. What R8
  // alone breaks is said by I3 (a commit that not all hold), I9, lost work, and claims of generations that never ran as
  // a whole: what members hold stays right.
  test(`R9: ${SWITCHABLE_RULES.R9}`, () => {
    const ignore = new Set(['I3', 'I9', 'lost-work', 'refusal'] as const)
    assert.ok(firstCaught(['R8', 'R9'], 100, { ignore }), 'R8 and R9 off are not missed')
    const guarded = firstCaught(['R8'], 100, { ignore })
    assert.equal(guarded, undefined, guarded === undefined ? '' : explain(guarded, { off: new Set(['R8']), ignore }))
  })
})
