import {
  applyEntry,
  decide,
  DEFAULT_ASYNC,
  DEFAULT_TIMING,
  type Effect,
  type JournalEntry,
  replay,
  type RunConfig,
  type RunInput,
  type RunMessage,
  type RunPhase,
  type RunState,
  type Timing,
} from '@starling-grid/coordinator/run'
// One run's decisions at a desk. Inputs go in one at a time, time is set by hand, and the answers of honest members
// come ready-made. Used by the run-*.test.ts files.
import {
  type BlameReason,
  type BlockId,
  type Claim,
  digest,
  extend,
  fold,
  genesis,
  isLinkTrouble,
  jobId,
  memberId,
  type MemberId,
  type MessageTo,
  type Mode,
  type Sha256,
  type StepRecord,
  type ToVolunteer,
  trainingBlock,
  type VersionRef,
} from '@starling-grid/protocol'
import { newcomer } from '../src/run/ring/newcomer.ts'

type Without<T, K extends string> = T extends unknown ? Omit<T, K> : never
/** A member's message without the ballot, which is filled in. */
export type Saying = Without<RunMessage, 'fence' | 'generation'>

export const hashOf = (text: string): Sha256 => digest(new TextEncoder().encode(text))
const saltedHash = (bytes: string, salt: Sha256): Sha256 => hashOf(`${salt} ${bytes}`)

export interface DeskOptions extends Partial<Omit<RunConfig, 'timing'>> {
  readonly timing?: Partial<Timing>
}

export class Desk {
  readonly state: RunState
  readonly entries: { readonly entry: JournalEntry; readonly at: number }[] = []
  /** effects of the last input */
  effects: readonly Effect[] = []
  now = 0
  /** what states are derived, as bytes; null: it cannot be done, so that votes decide; 'later': the test answers */
  derives: string | null = null
  /** what newcomers were asked to fetch and to prove last, and what the coordinator was asked to digest */
  readonly #offered = new Map<MemberId, VersionRef>()
  readonly #asked = new Map<MemberId, MessageTo<'prove'>>()
  readonly #digesting = new Set<Sha256>()

  constructor(options: DeskOptions = {}, earlier?: Desk) {
    const job = jobId('desk')
    const config: RunConfig = {
      job,
      genesis: genesis(job, 'model', 1),
      seed: 1,
      blocks: 6,
      validationBlocks: 0,
      batchBlocks: 3,
      blockSamples: 1,
      epochs: 2,
      stop: {},
      evaluate: {},
      keep: {},
      roundSteps: 1,
      roundBytes: { push: 0, pull: 0 },
      minVolunteers: 1,
      mode: 'ring',
      exchange: { asked: 'auto', bytes: 0 },
      versionBytes: 0,
      async: DEFAULT_ASYNC,
      ...options,
      timing: { ...DEFAULT_TIMING, ...options.timing },
    }
    this.entries.push(...(earlier?.entries ?? []))
    this.now = earlier?.now ?? 0
    const fence = 1 + this.entries.filter(({ entry }) => entry.type === 'fence').length
    this.entries.push({ entry: { type: 'fence', fence }, at: this.now })
    this.state = replay(config, this.entries)
    this.feed({ type: 'coordinator-started', secret: 'desk' })
  }

  feed(input: RunInput): readonly Effect[] {
    this.effects = decide(this.state, input, this.now).effects
    for (const effect of this.effects)
      if (effect.type === 'journal') for (const entry of effect.entries) this.entries.push({ entry, at: this.now })
    for (const effect of this.effects) this.#note(effect)
    for (const effect of this.effects)
      if (effect.type === 'derive-state' && this.derives !== 'later') this.derive(effect.version, this.derives)
    return this.effects
  }

  /** The shell answers `derive-state`; what follows joins the effects of the input before. */
  derive(version: VersionRef, bytes: string | null): void {
    const before = this.effects
    const derived = bytes === null ? { why: 'no member serves the sums' } : { digest: hashOf(bytes) }
    this.effects = [...before, ...this.feed({ type: 'state-derived', version, derived })]
  }

  #note(effect: Effect): void {
    if (effect.type === 'digest-checkpoint') this.#digesting.add(effect.salt)
    if (effect.type !== 'send') return
    if (effect.message.type === 'prefetch') this.#offered.set(effect.to, effect.message.version)
    if (effect.message.type === 'prove') this.#asked.set(effect.to, effect.message)
  }

  /** Newcomers fetch what they were offered, and say so. */
  fetch(...names: string[]): void {
    for (const name of names) {
      const version = this.#offered.get(memberId(name))
      if (version !== undefined) this.say(name, { type: 'prefetched', version })
    }
  }

  /** Newcomers prove what they were asked to; `bytes`: what they hold; `linked` undefined: they reach all. */
  prove(name: string, bytes = 'right', linked?: readonly string[]): void {
    const order = this.#asked.get(memberId(name))
    if (order === undefined) return
    const { salt, peers } = order
    if (this.#digesting.delete(salt))
      this.feed({ type: 'checkpoint-digested', salt, digest: saltedHash('right', salt) })
    this.say(name, { type: 'proof', salt, digest: saltedHash(bytes, salt), linked: linked?.map(memberId) ?? peers })
  }

  /** A member keeps the copy that it was asked for. */
  copy(name: string, version: VersionRef, bytes = 'right'): void {
    const { phase } = this.state
    const salt = phase.type === 'ring' ? this.state.copying.asked?.salt : undefined
    if (salt !== undefined) this.say(name, { type: 'copied', version, digest: saltedHash(bytes, salt) })
  }

  /** Newcomers, offered something by a tick, do all that they are asked for. */
  learn(...names: string[]): void {
    this.fetch(...names)
    for (const name of names) this.prove(name)
  }

  /** Time passes, then one tick. */
  wait(ms: number): readonly Effect[] {
    this.now += ms
    return this.feed({ type: 'tick' })
  }

  /**
   * Newcomers, who could not fetch anything yet, wait: the change of members is announced, and takes place although no
   * step ends.
   */
  admit(): void {
    for (const member of this.state.members.values()) {
      const one = newcomer(this.state, member.id)
      one.proven = true
      if (one.learner?.held === undefined && one.learner?.ready === false)
        this.say(member.id, { type: 'prefetched', version: null })
    }
    this.wait(3000)
    this.wait(3001)
  }

  join(...given: (string | { readonly relaysOnly: boolean })[]): void {
    const names = given.filter((one) => typeof one === 'string')
    const about = given.find((one) => typeof one === 'object')
    for (const name of names)
      this.feed({
        type: 'member-joined',
        samplesPerSecond: 100,
        member: {
          id: memberId(name),
          name,
          client: 'node',
          adapter: { name: 'none', vendor: 'test', software: true, executor: 'reference' },
          ...about,
        },
      })
  }

  lose(name: string): void {
    this.feed({ type: 'member-lost', member: memberId(name), reason: 'the socket broke', expected: false })
  }

  say(name: string, saying: Saying, generation = this.state.generation): readonly Effect[] {
    const { fence } = this.state
    return this.feed({
      type: 'message',
      member: memberId(name),
      message: { fence, generation, ...saying } as RunMessage,
    })
  }

  /** STATE of a member: nothing held, or the records since the committed version. */
  answer(name: string, records?: readonly StepRecord[], base: VersionRef = this.state.chain.head): void {
    const claim: Claim | null = records === undefined ? null : { base, records: [...records] }
    this.say(name, { type: 'state', claim })
    this.patience()
  }

  /** ABORT of a member that blames another; `links` are those with the same trouble. */
  accuse(
    by: string,
    blamed: string,
    why: BlameReason,
    options: { readonly links?: readonly string[]; readonly generation?: number } = {},
  ): readonly Effect[] {
    const links = (options.links ?? (isLinkTrouble(why) ? [blamed] : [])).map(memberId)
    return this.say(
      by,
      { type: 'abort', step: 1, blamed: memberId(blamed), why, links, code: 'link-lost', message: 'test' },
      options.generation,
    )
  }

  confirm(name: string, bytes = 'right'): void {
    const { phase } = this.state
    if (phase.type === 'form') this.say(name, { type: 'confirm', version: phase.target, digest: hashOf(bytes) })
  }

  /** From whatever ballot is open to a running ring of those that answer, who hold the committed version or nothing. */
  run(...names: string[]): void {
    for (const name of names) this.answer(name, this.state.chain.head.v === 0 ? undefined : [])
    for (const name of names) this.confirm(name)
  }

  /** All have answered: the wait of a ballot that follows failed attempts passes. */
  patience(): void {
    const { phase } = this.state
    if (
      phase.type !== 'freeze' ||
      phase.notBefore <= this.now ||
      [...phase.expected].some((id) => !phase.claims.has(id))
    )
      return
    this.wait(phase.notBefore - this.now)
  }

  /** The record that all members of the running generation make of step v. */
  record(v: number, blocks: readonly BlockId[] = this.planned(v)): StepRecord {
    const { generation, modeEpoch, phase } = this.state
    const scaling = phase.type === 'ring' ? phase.scalings.get(v) : undefined
    return {
      v,
      generation,
      modeEpoch,
      kind: this.mode === 'local' ? 'round' : 'ring',
      blocks: [...blocks],
      samples: blocks.length,
      targets: blocks.length,
      lossSum: 1,
      correct: 0,
      gradDigest: hashOf(`sum of ${v}`),
      ...(scaling === undefined ? {} : { scaling }),
    }
  }

  hold(name: string, record: StepRecord): readonly Effect[] {
    return this.say(name, { type: 'held', record })
  }

  /** All members of the ring hold step v. */
  step(v: number): void {
    const record = this.record(v)
    const { phase } = this.state
    if (phase.type === 'ring') for (const member of phase.members) this.hold(member, record)
  }

  planned(v: number): readonly BlockId[] {
    const { phase } = this.state
    return phase.type === 'ring' ? (phase.planned.get(v) ?? []) : []
  }

  get members(): readonly MemberId[] {
    const { phase } = this.state
    return phase.type === 'ring' || phase.type === 'form' ? phase.members : []
  }

  /** Messages of one type that the last input sent. */
  sent<K extends ToVolunteer['type']>(type: K): (MessageTo<K> & { readonly to: MemberId })[] {
    return this.effects.flatMap((effect) =>
      effect.type === 'send' && effect.message.type === type
        ? [{ ...(effect.message as MessageTo<K>), to: effect.to }]
        : [],
    )
  }

  /** Entries of one type that the last input journalled. */
  journalled<K extends JournalEntry['type']>(type: K): Extract<JournalEntry, { type: K }>[] {
    const entries = this.effects.flatMap((effect) => (effect.type === 'journal' ? effect.entries : []))
    return entries.filter((entry): entry is Extract<JournalEntry, { type: K }> => entry.type === type)
  }

  get refusals(): string[] {
    return this.effects.flatMap((effect) => (effect.type === 'refuse' ? [`${effect.to} ${effect.code}`] : []))
  }

  get verdict(): string | undefined {
    return this.effects.flatMap((effect) => (effect.type === 'push-verdict' ? [effect.verdict] : [])).at(0)
  }

  get phase(): RunPhase['type'] {
    return this.state.phase.type
  }

  get mode(): Mode {
    return this.state.mode
  }

  /** Parameters at the committed version become a checkpoint. */
  checkpoint(): void {
    applyEntry(
      this.state,
      {
        type: 'checkpoint',
        version: this.state.chain.head,
        blob: hashOf('right'),
        bytes: 1,
        witnessed: true,
        agreeing: 2,
        members: 2,
      },
      this.now,
    )
  }
}

/** The version that these records lead to. */
export function versionAfter(base: VersionRef, records: readonly StepRecord[]): VersionRef {
  const version = fold(base, records)
  if (version === undefined) throw new Error('internal: records that do not follow each other')
  return version
}

const SECOND_EPOCH = [0, 1, 2, 3, 4, 5].map((index) => trainingBlock(1, index))

/**
 * Records that follow a version, as a member alone would make them; of one block each, by default of the second epoch.
 */
export function recordsAfter(
  base: VersionRef,
  generation: number,
  count: number,
  blocks: readonly BlockId[] = SECOND_EPOCH,
): StepRecord[] {
  const records: StepRecord[] = []
  for (let version = base; records.length < count; version = extend(version, records.at(-1) as StepRecord)) {
    const v = version.v + 1
    records.push({
      v,
      generation,
      modeEpoch: 0,
      kind: 'ring',
      blocks: [blocks[records.length] ?? trainingBlock(0, v)],
      samples: 1,
      targets: 1,
      lossSum: 1,
      correct: 0,
      gradDigest: hashOf(`${generation} ${v}`),
    })
  }
  return records
}
