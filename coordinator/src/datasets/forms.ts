// What samples, targets and sources of a dataset are. Independent of who reads or keeps them.
import type { ChatForm } from '@starling-grid/protocol'
import type { TargetKind } from './fit.ts'

/** What a sample is in the shards. */
export interface SampleForm {
  /** (channels, height, width) of images, (n) of numbers; of texts (1) */
  readonly shape: readonly number[]
  readonly inputType: 'U8' | 'F32'
  /** multiplies stored inputs */
  readonly inputScale: number
  /** names of the columns of a flat sample */
  readonly inputNames?: readonly string[]
}

export interface TargetForm {
  readonly kind: TargetKind | 'tokens'
  /** how many classes, values, labels or tokens */
  readonly size: number
  /** of classes, or of the columns of values and labels */
  readonly names?: readonly string[]
  /** of a text of characters: each once, in the order of their numbers */
  readonly vocabulary?: string
  /** of another text */
  readonly tokens?: 'bytes' | 'bpe'
  /** samples of so many tokens with a target each; absent: running text, of which windows are cut */
  readonly labelled?: number
  /** of pieces: JSON of the tokenizer.json, for those who predict with a model of this text */
  readonly tokenizer?: string
  /** of examples in the tokens of a model: how that is talked to */
  readonly chat?: ChatForm
}

/** A file or folder that was read. */
export interface SourceFile {
  readonly path: string
  readonly files: number
  readonly bytes: number
  /** of its bytes; of a folder: of the digests of its files in their order */
  readonly sha256: string
}
