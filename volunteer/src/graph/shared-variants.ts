// The seam to what volunteers with the same class of adapter measured. No code.
import type { Sha256 } from '@starling-grid/protocol'

/**
 * Kept by the coordinator. Without `report` it answers with JSON of VariantVotesSchema, as it came, of at most
 * MAX_VARIANT_BYTES. `report`: JSON of VariantReportSchema, which it takes instead. Whatever fails here, a volunteer
 * measures as if it was alone. @throws what kept the answer away
 */
export type SharedVariants = (adapterClass: Sha256, report?: Uint8Array) => Promise<Uint8Array>
