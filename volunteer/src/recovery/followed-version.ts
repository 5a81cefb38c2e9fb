// A version as a coordinator makes it anew: a state, followed by the reduced gradients of the steps after it.
import { outerOptimizer, parseModelSpec } from '@starling-grid/model'
import { extend, type JobTerms, type StepRecord, type VersionRef } from '@starling-grid/protocol'
import { LocalVersion } from './local-version.ts'

/** `state`: the whole state of `from`; undefined: the seed makes it. @throws GridError 'version-corrupt' */
export function versionFrom(terms: JobTerms, from: VersionRef, state: Uint8Array | undefined): LocalVersion {
  const { optimizer, clipNorm, local } = terms
  const spec = parseModelSpec(terms.model)
  const held = new LocalVersion({ spec, optimizer, clipNorm, ...(local ? { outer: outerOptimizer(local) } : {}) })
  if (state === undefined) held.adoptInitial(from, terms.seed)
  else held.adopt(held.decode(state, from), from)
  return held
}

/** `sums`: Σ gradients of each record */
export function followSums(
  held: LocalVersion,
  records: readonly StepRecord[],
  sums: readonly Float32Array[],
): LocalVersion {
  for (const [i, record] of records.entries()) {
    const [version, sum] = [held.version, sums[i]]
    if (version === undefined || sum === undefined) throw new Error('internal: a step without its sum')
    held.apply(record, extend(version, record), sum)
  }
  return held
}
