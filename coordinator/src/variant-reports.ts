// Which kernel variants volunteers found fastest, by class of adapters, and what is handed out of it. One voice is
// never enough: how many voices a variant has goes with it, and whoever takes one over measures it again. In memory
// alone: after a restart volunteers report anew. Bounded; pure.
import {
  type MemberId,
  MOST_VOTED_SHAPES,
  type Sha256,
  type VariantReport,
  type VariantVotes,
} from '@starling-grid/protocol'

export interface Reporter {
  readonly member: MemberId
  /** an address, or a public network: all who have the same one are one voice */
  readonly voice: string
}

export interface VariantReportBounds {
  readonly classes: number
  /** kept of one class, the newest: drivers change */
  readonly reportsOfClass: number
  /** that one voice has reports in: it cannot push those of others out */
  readonly classesOfVoice: number
  /** of texts, in all */
  readonly bytes: number
}

/** A report has 2 to 10 kB, a volunteer one for each model that it trains. */
const BOUNDS: VariantReportBounds = { classes: 4096, reportsOfClass: 16, classesOfVoice: 32, bytes: 32 << 20 }
/** Of an entry, beside its texts. */
const ENTRY_BYTES = 64

interface KeptReport extends Reporter {
  readonly shapes: VariantReport['shapes']
  readonly bytes: number
}

/** voice → its report, the newest last */
type ClassReports = Map<string, KeptReport>

export class VariantReports {
  readonly #bounds: VariantReportBounds
  /** least recently used first */
  readonly #classes = new Map<Sha256, ClassReports>()
  /** voice → where it has reports, the oldest first */
  readonly #classesOf = new Map<string, Set<Sha256>>()
  #bytes = 0

  constructor(bounds: Partial<VariantReportBounds> = {}) {
    this.#bounds = { ...BOUNDS, ...bounds }
  }

  get bytes(): number {
    return this.#bytes
  }

  /** Instead of what this member, or this voice, said of the class before. */
  take(adapterClass: Sha256, { member, voice }: Reporter, { shapes }: VariantReport): void {
    for (const [other, kept] of this.#classes.get(adapterClass) ?? [])
      if (other === voice || kept.member === member) this.#remove(adapterClass, other)
    const bytes = shapes.reduce(
      (sum, { shape, variants }) => sum + shape.length + variants.join().length + ENTRY_BYTES,
      0,
    )
    const reports = this.#used(adapterClass) ?? new Map<string, KeptReport>()
    this.#classes.set(adapterClass, reports)
    reports.set(voice, { member, voice, shapes, bytes })
    this.#classesOf.set(voice, (this.#classesOf.get(voice) ?? new Set()).add(adapterClass))
    this.#bytes += bytes
    this.#makeRoom(adapterClass, voice)
  }

  votes(adapterClass: Sha256): VariantVotes {
    return votesOf([...(this.#used(adapterClass)?.values() ?? [])])
  }

  /** The reports of a class, which is the last now that makes room. */
  #used(adapterClass: Sha256): ClassReports | undefined {
    const reports = this.#classes.get(adapterClass)
    if (reports === undefined) return undefined
    this.#classes.delete(adapterClass)
    this.#classes.set(adapterClass, reports)
    return reports
  }

  #makeRoom(adapterClass: Sha256, voice: string): void {
    const { reportsOfClass, classesOfVoice } = this.#bounds
    for (const other of oldestBeyond(reportsOfClass, this.#classes.get(adapterClass))) this.#remove(adapterClass, other)
    for (const other of oldestBeyond(classesOfVoice, this.#classesOf.get(voice))) this.#remove(other, voice)
    while (this.#classes.size > this.#bounds.classes || this.#bytes > this.#bounds.bytes) {
      const [[unused, reports] = []] = this.#classes
      if (unused === undefined || reports === undefined) return
      for (const other of [...reports.keys()]) this.#remove(unused, other)
    }
  }

  #remove(adapterClass: Sha256, voice: string): void {
    const reports = this.#classes.get(adapterClass)
    const kept = reports?.get(voice)
    if (reports === undefined || kept === undefined) return
    reports.delete(voice)
    if (reports.size === 0) this.#classes.delete(adapterClass)
    this.#bytes -= kept.bytes
    const classes = this.#classesOf.get(voice)
    classes?.delete(adapterClass)
    if (classes?.size === 0) this.#classesOf.delete(voice)
  }
}

function oldestBeyond<K>(most: number, kept: ReadonlyMap<K, unknown> | ReadonlySet<K> | undefined): K[] {
  return kept === undefined ? [] : [...kept.keys()].slice(0, Math.max(0, kept.size - most))
}

/**
 * Of each shape the variant that most reports name; of several with as many votes the one that was named first. Those
 * with most votes come first, where there are more than an answer holds.
 */
export function votesOf(reports: readonly Pick<KeptReport, 'shapes'>[]): VariantVotes {
  const counts = new Map<string, Map<string, number>>()
  for (const { shapes } of reports)
    for (const [shape, variants] of new Map(shapes.map((one) => [one.shape, new Set(one.variants)]))) {
      const named = counts.get(shape) ?? new Map<string, number>()
      for (const variant of variants) named.set(variant, (named.get(variant) ?? 0) + 1)
      counts.set(shape, named)
    }
  const winners = [...counts].flatMap(([shape, named]) => {
    const [winner] = [...named].sort(([, a], [, b]) => b - a)
    return winner === undefined ? [] : [{ shape, variant: winner[0], votes: winner[1] }]
  })
  return {
    volunteers: reports.length,
    shapes: winners.sort((a, b) => b.votes - a.votes).slice(0, MOST_VOTED_SHAPES),
  }
}
