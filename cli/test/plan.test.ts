// `starling plan`: what it reads of a crowd, what it refuses, and what a forecast says.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isGridError } from '@starling-grid/protocol'
import { readChurn, readCrowd } from '../src/plan/crowd.ts'
import { forecast } from '../src/scaling/predict.ts'
import { MACHINE_KINDS } from '../src/scaling/profiles.ts'
import { folder, jobFile, plan, planOf, type PlanJson } from './plan-command.ts'
import { LENET5, SAMPLES, setting } from './plan-setting.ts'

/** "count kind [speed]", then the line: Mbit/s up and down, ms. */
function said(text: string): string {
  const { groups, links } = readCrowd(text)
  const machines = groups.map(({ count, kind, samplesPerSecond, gflops, f16 }) => {
    const speed = samplesPerSecond ?? gflops
    const halves = f16 === (kind.isSoftware !== true) ? [] : [f16 ? 'f16' : 'no f16']
    return [count, kind.name, ...(speed === undefined ? [] : [`${speed}`]), ...halves].join(' ')
  })
  const mbit = [links.up, links.down].map((rate) => Math.round(rate / 125_000)).join('/')
  return `${machines.join(', ')}; ${mbit} ${links.latencyMs} ms`
}

const READ: readonly (readonly [text: string, means: string])[] = [
  ['30 laptops, 5 gaming PCs, home lines', '30 laptop, 5 gaming PC; 20/92 20 ms'],
  ['1 laptop', '1 laptop; 20/92 20 ms'],
  ['2 Notebooks and 1 computer', '2 laptop, 1 desktop; 20/92 20 ms'],
  ['4 servers with a GPU, lab', '4 GPU server; 419/419 0.5 ms'],
  ['3 CPUs, fibre', '3 software adapter; 92/92 8 ms'],
  ['2 phones,mobile lines', '2 phone; 10/30 40 ms'],
  ['4 desktops at 200 samples/s, 20/60 Mbit/s 15 ms', '4 desktop 200; 20/60 15 ms'],
  ['4 desktops at 1.5 TFLOP/s, 8/16 mbit/s', '4 desktop 1500; 8/16 20 ms'],
  ['4 desktops without f16 at 200 samples/s, lab', '4 desktop 200 no f16; 419/419 0.5 ms'],
  ['2 CPUs with shader-f16, 1 laptop with f16', '2 software adapter f16, 1 laptop; 20/92 20 ms'],
  ['2  laptops ,  3 laptops', '2 laptop, 3 laptop; 20/92 20 ms'],
]

const REFUSED: readonly (readonly [text: string, why: RegExp])[] = [
  ['', /^expected machines to plan with, got ""; write for example "30 laptops/],
  ['home lines', /^expected machines to plan with/],
  ['30 lptops', /^expected a kind of machine \(.*laptops.*\), got "30 lptops"; did you mean "laptops"\?/],
  ['5 gaming PSs', /did you mean "gaming PCs"\?/],
  ['3 toasters', /got "3 toasters"; write for example/],
  ['laptops', /got "laptops"; write how many, as in "5 laptops"/],
  ['3 laptops, hme lines', /got "hme lines"; did you mean "home line"\?/],
  ['0 laptops', /^expected one laptop at least, got "0 laptops"; leave it out/],
  ['-3 laptops', /got "-3 laptops"/],
  ['6000 laptops', /^expected at most 5000 machines for one coordinator, got 6000; plan with fewer/],
  ['3 laptops, home lines, lab', /^expected one kind of lines for all machines/],
  ['3 laptops at 0 samples/s', /^expected a speed above 0, got "3 laptops at 0 samples\/s"/],
  ['3 laptops, 0/60 Mbit/s', /^expected a line up to 100000 Mbit\/s and 10000 ms, got "0\/60 Mbit\/s"/],
  ['3 laptops, 1.2.3/60 Mbit/s', /^expected a line/],
]

test('a crowd is read with its counts, kinds, speeds and lines', () => {
  for (const [text, means] of READ) assert.equal(said(text), means, text)
  for (const { plural, words } of MACHINE_KINDS)
    for (const name of [plural, ...words]) assert.equal(readCrowd(`2 ${name}`).groups[0]?.kind.plural, plural)
})

test('a crowd that cannot be read is refused with what was meant', () => {
  for (const [text, why] of REFUSED)
    assert.throws(
      () => readCrowd(text),
      (error) => isGridError(error) && error.code === 'usage' && why.test(error.message),
      text,
    )
})

test('churn is a part of all volunteers in a minute', () => {
  for (const [text, part] of [
    ['20%/min', 0.2],
    ['20 %', 0.2],
    ['0%', 0],
    ['2.5 % / minute', 0.025],
  ] as const)
    assert.equal(readChurn(text), part)
  for (const text of ['20', '200%', 'a lot', '-5%', '']) assert.throws(() => readChurn(text), /write 20%\/min/)
})

test('a forecast takes at least what computing takes, and sends what the formula of an exchange says', () => {
  const drawn = { up: 20, latencyMs: 20, samplesPerSecond: 400, volunteers: 4, seed: 3 }
  const seen = forecast(setting(drawn, { exchange: 'ring' }), SAMPLES)
  const steps = SAMPLES / 256
  assert.ok(seen.seconds > SAMPLES / (4 * 400), 'computing alone')
  const exchanged = steps * 1.5 * LENET5.exchangeBytes
  assert.ok(Math.abs(seen.bytesUp / exchanged - 1) < 0.1, `${seen.bytesUp} of ${exchanged}: the rest are checkpoints`)
  const churned = forecast(setting(drawn, { exchange: 'ring', churnPerMinute: 1 }), SAMPLES)
  assert.ok(churned.seconds > seen.seconds, 'departures cost time')
})

test("the demo's job has a plan, for people and as JSON", { timeout: 120_000 }, async () => {
  const { status, stdout, stderr } = await plan('demo', '--with', '4 laptops at 200 samples/s, home lines', '--json')
  assert.equal(status, 0, stderr)
  assert.match(stdout, /Plan of "Handwritten digits": 72,000 samples/)
  assert.match(stdout, /4 laptops: 200 samples\/s each, as given/)
  const json = JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as PlanJson
  assert.equal(json.samples, 72_000)
  assert.equal(json.own.encoding, 'f32')
  assert.ok(json.secondsToTarget > 72_000 / (4 * 200), 'not faster than all machines together')
  assert.ok(json.best.seconds <= json.own.seconds && json.tried.length > 2)
  assert.equal(json.secondsToTarget, json.best.seconds)
  assert.equal(json.groups, 1)
  assert.equal(json.innerSteps, 1)
  assert.ok(json.bytesPerMember.up > 0 && json.bytesPerMember.down > 8e6, 'the digits are 8 MB')
})

test('with weak scaling a plan has the batch and the rate of the ring', { timeout: 120_000 }, async () => {
  const crowd = '4 laptops at 200 samples/s, lab'
  const weak = await planOf(await jobFile('weak', 'weakScaling: { warmup: 20 }', 'stop: { steps: 80 }'), crowd)
  const { own, samples } = weak.json
  assert.ok(own.members >= 3, `${own.members} members`)
  assert.equal(own.batchSamples, own.members * 32)
  assert.ok(Math.abs(own.learningRate - own.members * 0.05) < 1e-9, `${own.learningRate}`)
  assert.equal(own.steps, 80)
  assert.match(weak.stdout, new RegExp(`batch +${own.batchSamples} \\(${own.members} members × 2 × 16\\)`))
  assert.match(weak.stdout, /learning rate is 0\.\d+, \d times the file's, 20 steps after the ring has so many/)
  const plain = await planOf(await jobFile('plain', 'stop: { steps: 80 }'), crowd)
  assert.deepEqual([plain.json.own.batchSamples, plain.json.own.learningRate], [32, 0.05])
  assert.ok(samples > 2.5 * plain.json.samples, 'steps of a larger ring have more samples')
  assert.ok(own.seconds > samples / 800, 'not faster than all machines together')
})

test('a plan of what is not there ends with what to do', async () => {
  const { status, stderr } = await plan('demo', '--with', '3 lptops')
  assert.equal(status, 2)
  assert.match(stderr, /did you mean "laptops"\?/)
  const unknown = await plan('examples/regression.yaml', '--with', '3 laptops', '--data-dir', folder)
  assert.equal(unknown.status, 1)
  assert.match(unknown.stderr, /homes/)
  assert.match(unknown.stderr, /starling dataset import/)
})
