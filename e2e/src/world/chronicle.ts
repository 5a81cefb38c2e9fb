// What the coordinators have shown to the world, row by row, whatever they remember of it. Never in it: repeated
// counters (I7), a changed chain (I5), two kinds of writers in one mode epoch (I8), mixed epochs.
import type { JournalEntry, RunConfig } from '@starling-grid/coordinator/run'
import {
  type Mode,
  type BlockId,
  epochOf,
  extend,
  type LeaseToken,
  sameVersion,
  type Sha256,
  type StepRecord,
  type VersionRef,
} from '@starling-grid/protocol'
import type { History, Replica } from './history.ts'
import { type ScalingTerms, wrongScaling } from './scaling.ts'
import type { Violations } from './violations.ts'

/** A row of a journal. */
export interface Row {
  readonly entry: JournalEntry
  /** ms: when it was decided, not when it was written */
  readonly at: number
}

/** What the rows of a journal tell of a run. */
export const CHRONICLED = [
  'ballots',
  'generations',
  'commits',
  'rewinds',
  'checkpoints',
  'quarantines',
  'restorations',
  'undoneRewinds',
  'ringToAsync',
  'asyncToRing',
  'localChanges',
  'rounds',
  'validations',
  'damagedCheckpoints',
  'restoredSteps',
  'appends',
  'scaledSteps',
] as const
export type ChronicleCounts = Record<(typeof CHRONICLED)[number], number>

const noneChronicled = (): ChronicleCounts => Object.fromEntries(CHRONICLED.map((name) => [name, 0])) as ChronicleCounts

/** What a blob holds; undefined: it is gone, or damaged. */
export type ReplicaOf = (blob: Sha256) => Replica | undefined

export interface ChronicleConfig extends Pick<RunConfig, 'blocks' | 'epochs' | 'mode' | 'genesis'> {
  /** training shards that the job began with, one block for each sample */
  readonly shards: number
  /** of a job whose batch follows the ring */
  readonly weak?: ScalingTerms
}

export class Chronicle {
  readonly records: StepRecord[] = []
  readonly #versions: VersionRef[]
  readonly #config: ChronicleConfig
  readonly #history: History
  readonly #isDamped: () => boolean
  readonly #violations: Violations
  #counts: ChronicleCounts
  readonly #replicaOf: ReplicaOf
  #fence = 0
  #generation = 0
  #modeEpoch = 0
  #mode: Mode
  /** generation → the fence of the coordinator that started it */
  readonly #started = new Map<number, number>()
  readonly #kinds = new Map<number, StepRecord['kind']>()
  readonly #leaseEpochs = new Map<BlockId, number>()
  #leasesReserved = 0
  readonly #quarantined = new Set<BlockId>()
  /** generation → its members */
  readonly #sizes = new Map<number, number>()
  readonly #appended: Extract<JournalEntry, { type: 'appended' }>[] = []
  readonly #checkpoints: VersionRef[]
  readonly #saved = new Set<string>()
  #abandoned: VersionRef | undefined
  /** steps of generations up to this one do not come back: a final rewind gave them up */
  #givenUpTo = -1
  /** versions that a restored journal does not have any more */
  readonly #lost = new Set<string>()
  /** rows of the past are read: bytes that they name may be gone by now */
  #isRead = false
  finished = false
  /** the journal was restored once; and nothing started since */
  restored = false
  justRestored = false

  constructor(
    config: ChronicleConfig,
    world: {
      readonly history: History
      /** off-ring members took part: their blocks come beside those of a batch */
      readonly isDamped: () => boolean
      readonly violations: Violations
      readonly counts: ChronicleCounts
      readonly replicaOf: ReplicaOf
    },
  ) {
    this.#config = config
    this.#mode = config.mode === 'auto' ? 'ring' : config.mode
    this.#history = world.history
    this.#isDamped = world.isDamped
    this.#violations = world.violations
    this.#counts = world.counts
    this.#replicaOf = world.replicaOf
    this.#versions = [config.genesis]
    this.#checkpoints = [config.genesis]
  }

  /** The world goes on from these rows: what was shown after them was never so, and its numbers may come again. */
  restoredTo(entries: readonly Row[]): Chronicle {
    const world = {
      history: this.#history,
      isDamped: this.#isDamped,
      replicaOf: this.#replicaOf,
      violations: this.#violations,
    }
    const restored = new Chronicle(this.#config, { ...world, counts: noneChronicled() })
    restored.#isRead = true
    for (const { entry } of entries) restored.observe(entry)
    restored.#isRead = false
    restored.#counts = this.#counts
    for (const id of [...this.#lost, ...this.#versions.map((version) => version.id)]) restored.#lost.add(id)
    for (const { id } of restored.#versions) restored.#lost.delete(id)
    restored.restored = true
    restored.justRestored = true
    return restored
  }

  get head(): VersionRef {
    return this.#versions.at(-1) ?? this.#config.genesis
  }

  get isAsync(): boolean {
    return this.#mode === 'async'
  }

  /** Of the coordinator that started this generation. */
  fenceOf(generation: number): number | undefined {
    return this.#started.get(generation)
  }

  /** The accepted checkpoint of a version, by its version. */
  hasCheckpoint(version: VersionRef): boolean {
    return this.#checkpoints.some((checkpoint) => sameVersion(checkpoint, version))
  }

  /** It was made from the head by a step that a final rewind gave up: that it is held saves no committed step. */
  isGivenUp(version: VersionRef): boolean {
    return this.#history.oldestGeneration(version, this.head) <= this.#givenUpTo
  }

  /** It had one, which may be damaged by now. */
  wasSaved({ id }: VersionRef): boolean {
    return this.#saved.has(id)
  }

  // oxlint-disable-next-line max-lines-per-function -- a flat switch over the entries of a journal
  observe(entry: JournalEntry): void {
    switch (entry.type) {
      case 'fence':
        this.#raise('fence', this.#fence, entry.fence)
        this.#fence = entry.fence
        return
      case 'ballot':
        this.#counts.ballots++
        this.#raise('ballot', this.#generation, entry.generation)
        this.#generation = entry.generation
        return
      case 'start':
        this.#start(entry.generation, entry.records)
        this.#sizes.set(entry.generation, entry.members.length)
        return
      case 'commit':
        return this.#commit(entry.records)
      case 'checkpoint':
        return this.#checkpoint(entry)
      case 'rewind':
        if (entry.final === true) this.#givenUpTo = entry.generation ?? this.#generation
        return this.#rewind(entry.to)
      case 'mode':
        this.#raise('mode epoch', this.#modeEpoch, entry.modeEpoch)
        this.#modeEpoch = entry.modeEpoch
        this.#counts[changeOf(this.#mode, entry.mode)]++
        this.#mode = entry.mode
        return
      case 'lease':
        this.#raise('the reservation of leases', this.#leasesReserved, entry.reserved)
        this.#leasesReserved = entry.reserved
        return
      case 'quarantine':
        this.#counts.quarantines++
        this.#quarantined.add(entry.block)
        return
      case 'validated':
        this.#counts.validations++
        return
      case 'evaluated': // its blocks were counted
      case 'trained': // simulated runs end by epochs
      case 'derived': // for people: it changes nothing
      case 'epochs': // no owner ends or pauses a simulated run
      case 'paused':
        return
      case 'appended':
        return this.#append(entry)
      case 'checkpoint-damaged':
        this.#counts.damagedCheckpoints++
        this.#checkpoints.splice(
          0,
          this.#checkpoints.length,
          ...this.#checkpoints.filter((one) => one.v === 0 || !sameVersion(one, entry.version)),
        )
        return
      case 'finished':
        return this.#finish()
      case 'restored':
        this.#counts.restorations += entry.blocks.length
        for (const block of entry.blocks) this.#quarantined.delete(block)
        return
      case 'snapshot': // what it says was said before
        return
      default:
        entry satisfies never
    }
  }

  /** I7: what is granted was never granted before, and is reserved. */
  granted(leases: readonly LeaseToken[]): void {
    for (const { block, leaseEpoch } of leases) {
      this.#raise(`lease epoch of block ${block}`, this.#leaseEpochs.get(block) ?? 0, leaseEpoch)
      this.#leaseEpochs.set(block, leaseEpoch)
      if (leaseEpoch > this.#leasesReserved)
        this.#violations.report('I7', `lease ${leaseEpoch} of block ${block} is not reserved`)
    }
  }

  /** I7 */
  #raise(what: string, from: number, to: number): void {
    if (to <= from) this.#violations.report('I7', `${what} ${to} is used again, after ${from}`)
  }

  #start(generation: number, records: readonly StepRecord[]): void {
    if (this.#started.has(generation)) this.#violations.report('I7', `generation ${generation} starts twice`)
    this.#started.set(generation, this.#fence)
    this.#counts.generations++
    this.justRestored = false
    this.#commit(records)
  }

  #commit(records: readonly StepRecord[]): void {
    for (const record of records) {
      const parent = this.head
      if (record.v !== parent.v + 1)
        return this.#violations.report('I5', `record ${record.v} is committed after version ${parent.v}`)
      const version = extend(parent, record)
      if (this.#abandoned?.id === version.id) this.#counts.undoneRewinds++
      this.#abandoned = undefined
      if (this.#lost.has(version.id)) this.#counts.restoredSteps++
      this.#checkEpoch(record)
      this.#checkWriter(record)
      this.#checkScaling(record)
      this.#history.record(parent, record, version)
      this.#versions.push(version)
      this.records.push(record)
      this.#counts.commits++
      if (record.kind === 'round') this.#counts.rounds++
    }
  }

  #checkEpoch(record: StepRecord): void {
    const epochs = new Set(record.blocks.map(epochOf))
    const [epoch] = epochs
    if (epoch === undefined || epochs.size > 1)
      return this.#violations.report('epoch', `version ${record.v} holds blocks of ${epochs.size} epochs`)
    const last = Math.max(0, ...this.records.slice(-1).flatMap(({ blocks }) => blocks.map(epochOf)))
    if (epoch < last) return this.#violations.report('epoch', `version ${record.v} goes back to epoch ${epoch}`)
    const missing = this.#missing(epoch)
    if (missing > 0)
      this.#violations.report(
        'epoch',
        `version ${record.v} begins epoch ${epoch} while ${missing} blocks of the one before are missing`,
      )
  }

  /** Blocks of the epochs before `end` that are neither in the head version nor quarantined. */
  #missing(end: number): number {
    const done = new Set(this.records.flatMap(({ blocks }) => blocks).filter((block) => epochOf(block) < end))
    const aside = [...this.#quarantined].filter((block) => epochOf(block) < end && !done.has(block))
    const all = Array.from({ length: end }, (_, epoch) => this.#blocksIn(epoch)).reduce((sum, one) => sum + one, 0)
    return all - done.size - aside.length
  }

  #blocksIn(epoch: number): number {
    return this.#appended.findLast((one) => one.epoch <= epoch)?.blocks ?? this.#config.blocks
  }

  /** Behind all that was there, and in no epoch that has begun (R13). */
  #append(entry: Extract<JournalEntry, { type: 'appended' }>): void {
    this.#counts.appends++
    const { epoch, blocks, before, shards } = entry
    const begun = Math.max(0, ...this.records.flatMap((record) => record.blocks.map(epochOf)))
    const known = this.#config.shards + this.#appended.reduce((sum, one) => sum + one.shards.length, 0)
    const expected = this.#blocksIn(this.#config.epochs) + shards.reduce((sum, { samples }) => sum + samples, 0)
    this.#appended.push(entry)
    if (epoch <= begun)
      this.#violations.report('appended', `data joins epoch ${epoch}, and epoch ${begun} is under way`)
    if (before !== known || blocks !== expected)
      this.#violations.report(
        'appended',
        `data is behind ${before} shards of ${known}, and an epoch has ${blocks} blocks of ${expected}`,
      )
  }

  #checkScaling(record: StepRecord): void {
    if (record.scaling !== undefined) this.#counts.scaledSteps++
    const problem = wrongScaling(record, {
      terms: this.#config.weak,
      size: this.#sizes.get(record.generation),
      before: this.records.at(-1)?.scaling?.scale ?? 1,
      isDamped: this.#isDamped(),
    })
    if (problem !== undefined) this.#violations.report('scaling', `version ${record.v} ${problem}`)
  }

  /** I8 */
  #checkWriter({ kind, modeEpoch, v }: StepRecord): void {
    const known = this.#kinds.get(modeEpoch) ?? kind
    this.#kinds.set(modeEpoch, known)
    if (known !== kind)
      this.#violations.report(
        'I8',
        `version ${v} is written by ${kind} in mode epoch ${modeEpoch}, which belongs to ${known}`,
      )
  }

  #checkpoint({ version, blob }: Extract<JournalEntry, { type: 'checkpoint' }>): void {
    this.#counts.checkpoints++
    if (this.#versions[version.v]?.id !== version.id)
      return this.#violations.report('I5', `the checkpoint of version ${version.v} is not on the chain`)
    const replica = blob === undefined ? undefined : this.#replicaOf(blob)
    if (this.#isRead) return this.#accept(version)
    if (replica === undefined)
      return this.#violations.report('I6', `the checkpoint of version ${version.v} has no bytes`)
    this.#history.check(`the checkpoint of version ${version.v}`, { version, counts: replica.counts })
    this.#accept(version)
  }

  #accept(version: VersionRef): void {
    this.#checkpoints.push(version)
    this.#saved.add(version.id)
  }

  /** I5: only to a prefix that is a checkpoint. */
  #rewind(to: VersionRef): void {
    this.#counts.rewinds++
    if (this.#versions[to.v]?.id !== to.id)
      return this.#violations.report('I5', `rewound to version ${to.v}, which is not on the chain`)
    if (!this.hasCheckpoint(to))
      return this.#violations.report('I5', `rewound to version ${to.v}, which is no checkpoint`)
    this.#abandoned = this.#versions[to.v + 1]
    this.#versions.length = to.v + 1
    this.records.length = to.v
    while ((this.#checkpoints.at(-1)?.v ?? 0) > to.v) this.#checkpoints.pop()
  }

  #finish(): void {
    this.finished = true
    const missing = this.#missing(this.#config.epochs)
    if (missing > 0) this.#violations.report('I9', `the run is finished and ${missing} blocks are missing`)
    if (!this.hasCheckpoint(this.head))
      this.#violations.report('I9', 'the run is finished and its last version is not durable')
  }
}

function changeOf(from: string, to: string): 'ringToAsync' | 'asyncToRing' | 'localChanges' {
  if (to === 'async') return 'ringToAsync'
  return from === 'async' ? 'asyncToRing' : 'localChanges'
}
