// What a model takes and answers, in the words of its dataset. It is written into the metadata of an exported model, so
// that the file alone suffices to predict.
import * as Type from 'typebox'
import type { Static } from 'typebox'
import { type DatasetManifest, DatasetManifestSchema, MAX_CLASS_NAMES, MAX_NORMALIZED } from './dataset.ts'
import { MAX_NAME_LENGTH } from './limits.ts'
import { strict } from './schema.ts'

const { inputShape, storedShape, inputType, inputScale, normalize, augment, classes, target, classNames, tokens } =
  DatasetManifestSchema.properties

const Names = (max: number) => Type.Optional(Type.Array(Type.String({ maxLength: MAX_NAME_LENGTH }), { maxItems: max }))

export const ModelSignatureSchema = strict({
  inputShape,
  storedShape,
  inputType,
  inputScale,
  normalize,
  /** a crop alone: images are cut to their middle */
  augment,
  classes,
  target,
  classNames,
  tokens,
  /** columns of a flat sample */
  inputNames: Names(MAX_NORMALIZED),
  /** columns of values and labels */
  targetNames: Names(MAX_CLASS_NAMES),
})
export type ModelSignature = Static<typeof ModelSignatureSchema>

/** How a tuned language model is talked to. */
export const ChatFormSchema = strict({
  /** of Jinja: how a conversation becomes text */
  template: Type.Optional(Type.String({ maxLength: 1_000_000 })),
  /** special tokens by their role, for the template */
  special: Type.Record(Type.String({ maxLength: 100 }), Type.String({ maxLength: 1000 })),
  /** tokens that end an answer */
  ends: Type.Array(Type.Integer({ minimum: 0, maximum: 2 ** 31 }), { maxItems: 64 }),
})
export type ChatForm = Static<typeof ChatFormSchema>

/** Names of columns, which volunteers need not have. */
export type ColumnNames = Pick<ModelSignature, 'inputNames' | 'targetNames'>

/** The signature of models that were trained on a dataset. Chance of augmentation is left out: it is for training. */
export function signatureOf(manifest: DatasetManifest, names: ColumnNames = {}): ModelSignature {
  const { crop } = manifest.augment ?? {}
  const optional = {
    storedShape: manifest.storedShape,
    inputType: manifest.inputType,
    normalize: manifest.normalize,
    augment: crop === undefined ? undefined : { crop },
    target: manifest.target,
    classNames: manifest.classNames,
    tokens: manifest.tokens,
    ...names,
  }
  const present = Object.fromEntries(Object.entries(optional).filter(([, value]) => value !== undefined))
  return { inputShape: manifest.inputShape, inputScale: manifest.inputScale, classes: manifest.classes, ...present }
}
