// Which kernel variants are fastest on a class of adapters: what one volunteer measured, and what the coordinator makes
// of the reports of several. Both come from strangers. A variant is a name that its reader looks up in a table of its
// own, so a report can never bring code.
import * as Type from 'typebox'
import { Count, strict, type ReadonlyOf } from './schema.ts'

/** Shapes of one model that have several variants: 13 to 36 of our examples. */
export const MOST_VOTED_SHAPES = 72
/** Characters of a shape; those of our kernels have 60 to 230. */
export const MOST_SHAPE_TEXT = 320
/** Bytes of a report and of an answer: more than so many shapes take, were each character a quotation mark. */
export const MAX_VARIANT_BYTES = 64 * 1024
/** Variants of one shape that a report names: equal machines time variants that are alike in another order. */
export const MOST_NAMED = 3
/** Reporters that must name a variant before a newcomer believes it without a measurement of all. */
export const VOTES_TO_CONFIRM = 2
/** ms for one call: no kernel of a bounded work takes longer */
const MOST_MS = 1e6

/** Printable, and without a backslash: of these only quotation marks take more bytes on the wire. */
const ShapeText = Type.String({ pattern: `^[\\x20-\\x5b\\x5d-\\x7e]{1,${MOST_SHAPE_TEXT}}$` })
/** `shared 64×64 split` */
const VariantText = Type.String({ minLength: 1, maxLength: 48 })

/** What one volunteer measured itself: of each shape the fastest variant, then those that were as good. */
export const VariantReportSchema = strict({
  shapes: Type.Array(
    strict({
      shape: ShapeText,
      variants: Type.Array(VariantText, { minItems: 1, maxItems: MOST_NAMED }),
      ms: Type.Number({ exclusiveMinimum: 0, maximum: MOST_MS }),
    }),
    { minItems: 1, maxItems: MOST_VOTED_SHAPES },
  ),
})
export type VariantReport = ReadonlyOf<typeof VariantReportSchema>

/** Of each shape the variant that most volunteers of the class named. */
export const VariantVotesSchema = strict({
  /** whose reports are kept */
  volunteers: Count,
  shapes: Type.Array(
    strict({ shape: ShapeText, variant: VariantText, votes: Type.Integer({ minimum: 1, maximum: 1e6 }) }),
    { maxItems: MOST_VOTED_SHAPES },
  ),
})
export type VariantVotes = ReadonlyOf<typeof VariantVotesSchema>
