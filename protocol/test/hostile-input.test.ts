// What strangers send meets the gates of this package: it is a value of its schema, or a GridError, and nothing else.
// STARLING_FUZZ multiplies the numbers of tries.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  decodeToCoordinator,
  decodeToVolunteer,
  FetchRefusalSchema,
  FetchSchema,
  FRAME_HEADER_BYTES,
  FRAME_TYPES,
  type FrameType,
  GridError,
  isErrorCode,
  jobMistakes,
  asJobSpec,
  MistakesError,
  ManifestSchema,
  MAX_FRAME_PAYLOAD_BYTES,
  MAX_MESSAGE_BYTES,
  packFrame,
  parse,
  parseJson,
  PushSchema,
  random32,
  readSafetensors,
  unpackFrame,
  writeSafetensors,
} from '@starling-grid/protocol'
import { compileChecks } from '@starling-grid/protocol/compiled-checks'
import { Check } from 'typebox/schema'
import { TO_COORDINATOR, TO_VOLUNTEER } from '../src/messages.ts'
import { MAX_JSON_DEPTH, measureJson } from '../src/schema.ts'
import { BlockIdSchema } from '../src/schema.ts'
import { type Schema, Stranger } from './hostile-values.ts'

const TIMES = Number(process.env['STARLING_FUZZ'] ?? 1)
const MESSAGES_OF_A_TYPE = 300 * TIMES
const FRAMES = 50_000 * TIMES

/** Anything but a GridError is a defect; what it was made of is told. */
function refusedOrTaken<T>(what: () => string, take: () => T): T | undefined {
  try {
    return take()
  } catch (error) {
    assert.ok(error instanceof GridError && isErrorCode(error.code), `${what()} throws ${String(error)}`)
    assert.ok(error.message.length < 2000, `a refusal is short: ${error.message.length} characters`)
    return undefined
  }
}

const DIRECTIONS = [
  {
    name: 'the coordinator',
    schemas: TO_COORDINATOR as unknown as Record<string, Schema>,
    decode: decodeToCoordinator,
  },
  { name: 'a volunteer', schemas: TO_VOLUNTEER as unknown as Record<string, Schema>, decode: decodeToVolunteer },
]

/** By direction: which of the changed messages were taken when their schemas were walked through. */
const takenWalked = new Map<string, readonly boolean[]>()

/** In this order: processes compile their schemas for good. */
for (const way of ['walked through', 'compiled'] as const)
  for (const { name, schemas, decode } of DIRECTIONS)
    test(`schemas ${way}, to ${name}: valid ones pass unchanged, others are refused or read as they are`, (context) => {
      if (way === 'compiled') compileChecks()
      const stranger = new Stranger(random32(1))
      const outcomes: boolean[] = []
      let taken = 0
      let refused = 0
      for (const [type, schema] of Object.entries(schemas))
        for (let i = 0; i < MESSAGES_OF_A_TYPE; i++) {
          const good = stranger.value(schema)
          const text = JSON.stringify(good)
          if (text.length <= MAX_MESSAGE_BYTES && measureJson(text).depth <= MAX_JSON_DEPTH)
            assert.deepEqual(decode(text), JSON.parse(text), `a good ${type}`)
          const bad = i % 2 === 0 ? stranger.mangled(text) : JSON.stringify(stranger.changed(good))
          const message = refusedOrTaken(
            () => `${type} ${i}: ${bad.slice(0, 300)}`,
            () => decode(bad),
          )
          outcomes.push(message !== undefined)
          if (message === undefined) refused++
          else taken++
          if (message !== undefined) assert.deepEqual(message, JSON.parse(bad), 'what passes is what was said')
        }
      assert.ok(refused > taken, `${refused} refused, ${taken} taken`)
      assert.equal(({} as Record<string, unknown>)['polluted'], undefined, 'Object.prototype is as it was')
      assert.deepEqual(outcomes, takenWalked.get(name) ?? outcomes, 'both ways take the same messages')
      takenWalked.set(name, outcomes)
      context.diagnostic(`${refused} refused, ${taken} still good`)
    })

for (const { name, schemas, decode } of DIRECTIONS)
  test(`messages to ${name} with a property that their schema does not name are refused`, () => {
    const stranger = new Stranger(random32(2))
    for (const [type, schema] of Object.entries(schemas)) {
      const good = stranger.value(schema) as Record<string, unknown>
      assert.throws(
        () => decode(JSON.stringify({ ...good, unnamed: 1 })),
        { code: 'message-malformed', message: /unnamed/ },
        type,
      )
    }
  })

test('frames: what is bent unpacks to a view of its own bytes, or is refused', () => {
  const stranger = new Stranger(random32(2))
  const types = Object.keys(FRAME_TYPES) as FrameType[]
  for (let i = 0; i < FRAMES; i++) {
    const payload = Uint8Array.from({ length: stranger.below(40) }, () => stranger.below(256))
    const [generation, step, bucket, hop, offset] = Array.from({ length: 5 }, () => stranger.below(8)) as [
      number,
      number,
      number,
      number,
      number,
    ]
    const bent = stranger.bent(
      packFrame({ type: stranger.pick(types), generation, step, bucket, hop, offset, payload }),
    )
    const frame = refusedOrTaken(
      () => `frame ${i}: ${Buffer.from(bent).toString('hex')}`,
      () => unpackFrame(bent),
    )
    if (frame === undefined) continue
    assert.equal(frame.payload.buffer, bent.buffer, 'nothing was allocated')
    assert.equal(frame.payload.byteLength, bent.byteLength - FRAME_HEADER_BYTES)
  }
})

test('a frame above the limit is refused by its length, whatever its header says', () => {
  const huge = new Uint8Array(FRAME_HEADER_BYTES + MAX_FRAME_PAYLOAD_BYTES + 1)
  assert.throws(
    () => unpackFrame(huge),
    (error) => error instanceof GridError && error.code === 'message-too-large',
  )
})

const SMALLER = {
  'a manifest': ManifestSchema,
  'a fetch request': FetchSchema,
  'a refusal of a fetch': FetchRefusalSchema,
  'the header of a push': PushSchema,
}
for (const [what, schema] of Object.entries(SMALLER))
  test(`${what} passes as what it says or is refused`, () => {
    const stranger = new Stranger(random32(3))
    for (let i = 0; i < 3 * MESSAGES_OF_A_TYPE; i++) {
      const good = stranger.value(schema as unknown as Schema)
      parse(schema, good, what)
      const text = i % 2 === 0 ? stranger.mangled(JSON.stringify(good)) : JSON.stringify(stranger.changed(good))
      refusedOrTaken(
        () => `${what} ${i}: ${text.slice(0, 300)}`,
        () => parse(schema, parseJson(text, MAX_MESSAGE_BYTES, what), what),
      )
    }
  })

test('job descriptions are refused with their place, or taken', () => {
  const stranger = new Stranger(random32(4))
  const job = {
    name: 'n',
    owner: 'o',
    purpose: 'p',
    model: {
      name: 'linear',
      input: [1, 28, 28],
      layers: [{ type: 'flatten' }, { type: 'linear', name: 'fc', out: 10 }],
    },
    dataset: { source: 'digits' },
    optimizer: { type: 'sgd', lr: 0.01, momentum: 0.9 },
    blockSamples: 8,
    batchBlocks: 4,
    stop: { epochs: 2, metric: 'accuracy', target: 0.9, patience: 3 },
    evaluate: { everyEpochs: 2 },
    seed: 3,
    mode: 'ring',
    volunteers: { min: 2 },
  }
  assert.deepEqual(jobMistakes(job), [])
  for (let i = 0; i < 5 * MESSAGES_OF_A_TYPE; i++) {
    const bad = stranger.changed(job)
    refusedOrTaken(
      () => `job ${i}: ${JSON.stringify(bad).slice(0, 300)}`,
      () => {
        const mistakes = jobMistakes(bad)
        if (mistakes.length > 0) throw new MistakesError('job-invalid', mistakes)
        asJobSpec(bad)
      },
    )
  }
})

test('safetensors: bent files are refused before memory is taken for what they announce', () => {
  const stranger = new Stranger(random32(5))
  const file = writeSafetensors(
    new Map([
      ['a', { dtype: 'F32' as const, shape: [2, 3], data: new Uint8Array(24) }],
      ['b', { dtype: 'F32' as const, shape: [1], data: new Uint8Array(4) }],
    ]),
  )
  for (let i = 0; i < FRAMES / 10; i++) {
    const bent =
      stranger.below(2) === 0
        ? stranger.bent(file)
        : new TextEncoder().encode(stranger.mangled(new TextDecoder('latin1').decode(file)))
    const read = refusedOrTaken(
      () => `file ${i}: ${Buffer.from(bent).toString('hex')}`,
      () => readSafetensors(bent),
    )
    for (const tensor of read?.tensors.values() ?? [])
      assert.ok(tensor.data.byteLength <= bent.byteLength, 'tensors are parts of the file')
  }
})

test('a block has one name: leading zeros, signs and other spellings are refused', () => {
  for (const name of ['0:0', '0:7', '12:345', 'v:0', 'v:10', '999999999:999999999'])
    assert.ok(Check(BlockIdSchema, name), name)
  for (const name of [
    '0:07',
    '00:7',
    '01:1',
    'v:00',
    'v:01',
    '0:-1',
    '-0:1',
    '0:1 ',
    ' 0:1',
    '0:1\n',
    '0:',
    ':1',
    'V:1',
    '0x0:1',
    '1e1:0',
    '0:0:0',
    '9999999999:0',
  ])
    assert.ok(!Check(BlockIdSchema, name), JSON.stringify(name))
})
