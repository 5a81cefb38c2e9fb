// The seam to what volunteers with the same class of adapter measured. No code.
import type { Sha256 } from '@starling-grid/protocol'

/** Kept by the coordinator. Whatever fails here, a volunteer measures for itself as if it was alone. */
export interface SharedVariants {
  /** JSON of VariantVotesSchema, as it came: of at most MAX_VARIANT_BYTES. @throws what kept the answer away */
  votes(adapterClass: Sha256): Promise<Uint8Array>
  /** `report`: JSON of VariantReportSchema. @throws what kept it from being taken */
  report(adapterClass: Sha256, report: Uint8Array): Promise<void>
}
