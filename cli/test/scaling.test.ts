// The model of scale: what makes a crowd slower in it, and that one seed predicts the same every time.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { asyncPolicy } from '@starling-grid/coordinator/run'
import { predict, type Setting } from '../src/scaling/predict.ts'
import { HOMES, MIXED } from '../src/scaling/profiles.ts'

/** ResNet-20 in replica groups. */
const CROWD: Setting = {
  gradientBytes: 1_089_896,
  exchangeBytes: 1_089_896,
  stateBytes: 2_179_792,
  batchBlocks: 2,
  blockSamples: 2048,
  stepMs: 0,
  volunteers: 28,
  links: HOMES,
  machines: MIXED,
  churnPerMinute: 0.2,
  mode: 'async',
  exchange: 'auto',
  roundSteps: 1,
  minVolunteers: 1,
  async: asyncPolicy(undefined, 12, {}),
  warmUpSeconds: 60,
  seconds: 60,
  seed: 1,
}
const ALONE = (28 / 7) * MIXED.samplesPerSecond.reduce((sum, speed) => sum + speed, 0)

test('one seed predicts the same crowd to the last digit, and another seed another one', () => {
  const [one, again, other] = [1, 1, 2].map((seed) => predict({ ...CROWD, seed }).samplesPerSecond)
  assert.equal(one, again)
  assert.notEqual(one, other)
})

test('members of a crowd fetch the shards of their part, and about the same ones from epoch to epoch', () => {
  const setting = { ...CROWD, churnPerMinute: 0, blockSamples: 64, blocks: 12_800, shardBlocks: 64, seconds: 300 }
  const { shards = assert.fail() } = predict(setting)
  assert.equal(shards.all, 200)
  const part = shards.all / CROWD.volunteers
  assert.ok(shards.ofGrant < part + 2, `${shards.ofGrant} of a grant, where a part of an epoch has ${part}`)
  assert.ok(shards.ofMember < 2 * part, `${shards.ofMember} of a member after several epochs`)
  assert.equal(predict(CROWD).shards, undefined)
})

test('a crowd trains as fast as its data comes, and once it has its data as fast as without', () => {
  const [shardSamples, lineBytesPerSecond] = [4096, 125e6]
  const after = (shardBytes: number | undefined, warmUpSeconds: number): number =>
    predict({
      ...CROWD,
      churnPerMinute: 0,
      blockSamples: 64,
      blocks: 51_200,
      shardBlocks: 64,
      ...(shardBytes === undefined ? {} : { shardBytes }),
      warmUpSeconds,
      seconds: 120,
    }).samplesPerSecond
  const large = 100e6
  const asItComes = (shardSamples * lineBytesPerSecond) / large
  const starved = after(large, 100)
  assert.ok(starved > 0.75 * asItComes && starved < 1.1 * asItComes, `${starved} of ${asItComes} that come`)
  const [without, fed] = [after(undefined, 200), after(12.6e6, 200)]
  assert.ok(fed > 0.8 * without, `${fed}, and ${without} without`)
})

test('a crowd trains nearly as fast as its members alone, and slower where pushes take long to be taken in', () => {
  const calm = { ...CROWD, churnPerMinute: 0 }
  const [none, little, much] = [undefined, 1, 2000].map(
    (addMs) => predict({ ...calm, ...(addMs === undefined ? {} : { addMs }) }).samplesPerSecond,
  )
  if (none === undefined || little === undefined || much === undefined) return assert.fail()
  assert.ok(none > 0.9 * ALONE, `${none} of ${ALONE}`)
  assert.ok(Math.abs(little - none) < 0.05 * none, `${little}, and ${none} without`)
  assert.ok(much < 0.9 * none, `56 s of pushes in each round: ${much}`)
})

test('nearly all that a crowd learns comes in time for its version, also where volunteers come and go', () => {
  for (const churnPerMinute of [0, 0.2]) {
    const { weight } = predict({ ...CROWD, churnPerMinute, warmUpSeconds: 120, seconds: 120 })
    assert.ok(weight > 0.8 && weight <= 1, `with ${churnPerMinute} a minute a sample counts ${weight}`)
  }
})

test('volunteers that go cost a crowd some of its speed, and those that come take their places', () => {
  const [churned, calm] = [0.2, 0].map((churnPerMinute) => predict({ ...CROWD, churnPerMinute }).samplesPerSecond)
  if (churned === undefined || calm === undefined) return assert.fail()
  assert.ok(churned < calm && churned > 0.75 * calm, `${churned} instead of ${calm}`)
})
