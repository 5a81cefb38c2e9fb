// What a volunteer and a machine of its rack that is lent to it say to each other. A message is a safetensors file: its
// text is the metadata `message`, its vectors are tensors.
import * as Type from 'typebox'
import type { Static, TSchema } from 'typebox'
import { type ErrorCode, GridError, isErrorCode, isGridError } from './errors.ts'
import {
  float32Values,
  floatTensor,
  int32Values,
  readSafetensors,
  type StoredTensor,
  writeSafetensors,
} from './safetensors.ts'
import { Count, parse, parseJson, strict } from './schema.ts'
import { TallySchema } from './tally.ts'

/** Path of the socket: machines with other messages are not found there. */
export const RACK_PATH = '/starling-rack/1'
/** of a message without its vectors: a model is the largest */
const MAX_TEXT_BYTES = 4 * 1024 * 1024
const MAX_SENTENCE = 2000
const MAX_BLOCK_SAMPLES = 1_000_000
const MAX_GROUPS = 65_536

const Call = Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER })
const Name = Type.String({ maxLength: 400 })
const Sentence = Type.String({ maxLength: MAX_SENTENCE })
const Trouble = strict({ code: Type.Optional(Type.String({ maxLength: 40 })), message: Sentence })
const batch = {
  call: Call,
  samples: Count,
  /** samples of each block, where a model normalises within blocks */
  groups: Type.Optional(Type.Array(Count, { maxItems: MAX_GROUPS })),
}

/** volunteer → machine */
const ToMachineSchema = Type.Union([
  strict({
    type: Type.Literal('open'),
    /** the model, as in a job */
    model: Type.Unknown(),
    blockSamples: Type.Integer({ minimum: 1, maximum: MAX_BLOCK_SAMPLES }),
    precision: Type.Optional(Type.Union([Type.Literal('f32'), Type.Literal('f16')])),
    needsF16: Type.Optional(Type.Boolean()),
    /** the machine asks for the frozen parameters one at a time */
    hasFrozen: Type.Boolean(),
  }),
  /** vector `values`, or the trouble of who was to give them */
  strict({ type: Type.Literal('frozen'), name: Name, trouble: Type.Optional(Trouble) }),
  /** vector `parameters` (parameterCount,) */
  strict({ type: Type.Literal('load') }),
  /** vectors of a batch: `x`, `y` and perhaps `keys` */
  strict({ type: Type.Literal('gradient'), ...batch }),
  strict({ type: Type.Literal('evaluate'), ...batch }),
  /** vector `x` */
  strict({ type: Type.Literal('predict'), call: Call, samples: Count }),
])

/** machine → volunteer */
const FromMachineSchema = Type.Union([
  strict({ type: Type.Literal('wants-frozen'), name: Name }),
  strict({
    type: Type.Literal('opened'),
    adapter: strict({
      name: Name,
      vendor: Name,
      software: Type.Boolean(),
      executor: Type.Union([Type.Literal('reference'), Type.Literal('wasm'), Type.Literal('webgpu')]),
      f16: Type.Optional(Type.Literal(true)),
    }),
  }),
  strict({ type: Type.Literal('refused'), trouble: Trouble }),
  /** of a gradient the sums and the vector `values`; of an evaluation the sums; of a prediction the vector */
  strict({
    type: Type.Literal('answer'),
    call: Call,
    sums: Type.Optional(
      strict({
        lossSum: Type.Union([Type.Number(), Type.Null()]),
        targets: Count,
        correct: Count,
        tally: Type.Optional(TallySchema),
      }),
    ),
  }),
  strict({ type: Type.Literal('failed'), call: Call, trouble: Trouble }),
])

export type ToMachine = Static<typeof ToMachineSchema>
export type FromMachine = Static<typeof FromMachineSchema>
export type RackTrouble = Static<typeof Trouble>

type RackVector = Float32Array | Int32Array

export interface RackMessage<T> {
  readonly text: T
  readonly vectors: ReadonlyMap<string, StoredTensor>
}

export function writeRackMessage(
  text: ToMachine | FromMachine,
  vectors: Readonly<Record<string, RackVector | undefined>> = {},
): Uint8Array<ArrayBuffer> {
  const given = Object.entries(vectors).flatMap(([name, values]) =>
    values === undefined ? [] : [[name, tensorOf(values)] as const],
  )
  return writeSafetensors(new Map(given), { message: JSON.stringify(text) })
}

function tensorOf(values: RackVector): StoredTensor {
  const floats = new Float32Array(values.buffer, values.byteOffset, values.length)
  return { ...floatTensor([values.length], floats), dtype: values instanceof Float32Array ? 'F32' : 'I32' }
}

/** @throws GridError 'message-malformed' or 'message-too-large' */
export function readToMachine(bytes: Uint8Array): RackMessage<ToMachine> {
  return read(bytes, ToMachineSchema)
}

/** @throws GridError 'message-malformed' or 'message-too-large' */
export function readFromMachine(bytes: Uint8Array): RackMessage<FromMachine> {
  return read(bytes, FromMachineSchema)
}

function read<T extends TSchema>(bytes: Uint8Array, schema: T): RackMessage<Static<T>> {
  const { tensors, metadata } = readSafetensors(bytes)
  const json = parseJson(metadata['message'] ?? '', MAX_TEXT_BYTES, 'a message of a rack')
  return { text: parse(schema, json, 'message of a rack'), vectors: tensors }
}

/** @throws GridError 'message-malformed' when there is none of this name */
export function vectorIn({ vectors }: RackMessage<unknown>, name: string): RackVector {
  const tensor = vectors.get(name)
  if (tensor === undefined) throw new GridError('message-malformed', `expected the vector ${name}, got none`)
  return tensor.dtype === 'I32' ? int32Values(tensor) : float32Values(tensor)
}

/** @throws GridError 'message-malformed' when there is none of this name with so many floats */
export function floatsIn(message: RackMessage<unknown>, name: string, length: number): Float32Array {
  const values = vectorIn(message, name)
  if (values instanceof Float32Array && values.length === length) return values
  throw new GridError('message-malformed', `expected ${length} floats as ${name}, got ${values.length} numbers`)
}

export function rackTroubleOf(error: unknown): RackTrouble {
  const message = (error instanceof Error ? error.message : String(error)).slice(0, MAX_SENTENCE)
  return isGridError(error) ? { code: error.code, message } : { message }
}

/** What failed on a machine without a code is that machine's trouble: its samples go to others. */
export function errorOfTrouble({ code = 'device-lost', message }: RackTrouble): GridError {
  const known: ErrorCode = isErrorCode(code) ? code : 'device-lost'
  return new GridError(known, message)
}
