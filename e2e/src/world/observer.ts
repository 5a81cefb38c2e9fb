// Checks the invariants of docs/RULES.md from outside: what coordinators and members say to each other, what members
// apply, and what the journal shows. It also counts what happened.
import type { RunState } from '@starling-grid/coordinator/run'
import type { JournalRow, Runs } from '@starling-grid/coordinator/shell'
import {
  type BlockId,
  type Claim,
  epochOf,
  type ErrorCode,
  extend,
  fold,
  isGridError,
  type JobId,
  type MemberId,
  type OnWire,
  PLAN_WINDOW,
  type Sha256,
  sameVersion,
  type StepRecord,
  type ToCoordinator,
  type ToVolunteer,
  type VersionId,
  type VersionRef,
} from '@starling-grid/protocol'
import type { CoordinatorProcess } from './coordinator-process.ts'
import { hears } from './defects.ts'
import { checkStart } from './replay.ts'
import type { VolunteerProcess } from './volunteer-process.ts'
import type { WatchedRun } from './watched-run.ts'
import type { World } from './world.ts'

/** A ring that a member is in. */
export interface RingSeen {
  readonly job: JobId
  readonly fence: number
  readonly generation: number
  readonly members: readonly MemberId[]
  readonly step: number
}

/** Codes that honest members are never answered with. */
const NEVER: ReadonlySet<string> = new Set<ErrorCode>([
  'message-malformed',
  'message-unexpected',
  'message-too-large',
  'identity-unproven',
  'model-hash',
  'rate-exceeded',
])
/** A member that is connected this long without a break has heard the ballot and was heard, ms. */
const IN_REACH_MS = 500
/** ms for which a member that stood still may not have been heard */
const STOOD_STILL_MS = 30_000

type ToldRun = ReturnType<Runs['list']>[number]

/** What a member did in one run. */
interface Deeds {
  promised: number
  /** generation that it started */
  running: { readonly fence: number; readonly generation: number } | undefined
  confirmed: { readonly generation: number; readonly version: VersionRef } | undefined
  members: readonly MemberId[]
  /** last step that it was told to do */
  plannedTo: number
}

export class Observer {
  readonly #world: World
  readonly #deeds = new WeakMap<VolunteerProcess, Map<JobId, Deeds>>()
  /** versions that a member made up alone → the seat */
  readonly invented = new Map<VersionId, number>()
  /** job and member → it was in a ring that started: it worked */
  readonly #worked = new Set<string>()
  readonly #claims = new WeakMap<RunState, ReadonlyMap<MemberId, Claim | null>>()
  readonly #phases = new WeakMap<RunState, { readonly type: string; readonly generation: number }>()
  /** fence, generation and version → digest that members confirmed */
  readonly #digests = new Map<string, string>()
  /** notes of a run in one coordinator → how many were told */
  readonly #notesTold = new WeakMap<ToldRun['history']['events'], number>()
  /** the folder was put back once: what members promised and hold may be more than it knows */
  wasRestored = false

  constructor(world: World) {
    this.#world = world
  }

  /** What its rows do not say any more is unknown to the next coordinator. */
  restored(): void {
    this.wasRestored = true
    this.#worked.clear()
    for (const job of this.#world.runs.keys())
      for (const { entry } of this.#world.disk.rows(job))
        if (entry.type === 'start') for (const id of entry.members) this.#worked.add(`${job} ${id}`)
  }

  // ---- what is said ----

  /** False: it is lost on the way. */
  sent(coordinator: CoordinatorProcess, to: VolunteerProcess, message: OnWire<ToVolunteer>): boolean {
    const world = this.#world
    world.tell(() => `to ${to.name}: ${JSON.stringify(message).slice(0, 300)}`)
    if (coordinator.clock.isDead) return false
    switch (message.type) {
      case 'form':
        this.#formed(coordinator, message)
        break
      case 'grant':
      case 'validate':
        if (coordinator === world.coordinator && !coordinator.isDeposed)
          world.run(message.job).chronicle.granted(message.leases)
        break
      case 'rebalance-done':
        for (const { blocks } of message.moves) world.counts.movedBlocks += blocks.length
        break
      case 'refused':
        this.#told(to, message)
        break
      default:
    }
    world.faults.onMoment(coordinator)
    return !coordinator.clock.isDead && hears(to, message.type, world.scenario)
  }

  heard(by: VolunteerProcess, message: OnWire<ToVolunteer>): boolean {
    switch (message.type) {
      case 'freeze': {
        const deeds = this.#deedsOf(by, message.job)
        if (deeds.promised === message.generation) this.#world.counts.equalBallots++
        deeds.promised = Math.max(deeds.promised, message.generation)
        deeds.running = undefined
        return true
      }
      case 'start': {
        const deeds = this.#deedsOf(by, message.job)
        if (deeds.promised === message.generation)
          deeds.running = { fence: message.fence, generation: message.generation }
        deeds.plannedTo = message.plan.at(-1)?.step ?? message.after.v
        noteEpoch(by, message.plan.at(-1)?.blocks)
        if (this.#hostedState(message.job)?.phase.type === 'ring' && by.isHonest) this.#checkStarted(by, message)
        return true
      }
      case 'plan': {
        const deeds = this.#deedsOf(by, message.job)
        deeds.plannedTo = Math.max(deeds.plannedTo, message.steps.at(-1)?.step ?? 0)
        noteEpoch(by, message.steps.at(-1)?.blocks)
        return true
      }
      case 'grant':
        noteEpoch(
          by,
          message.leases.map(({ block }) => block),
        )
        return true
      case 'form':
        this.#deedsOf(by, message.job).members = message.members
        this.#deedsOf(by, message.job).running = undefined
        return true
      case 'async':
      case 'finished':
        this.#deedsOf(by, message.job).running = undefined
        return true
      default:
        return true
    }
  }

  /** What leaves; undefined: nothing. */
  said(by: VolunteerProcess, message: OnWire<ToCoordinator>): OnWire<ToCoordinator> | undefined {
    const world = this.#world
    world.tell(() => `${by.name} says ${JSON.stringify(message).slice(0, 300)}`)
    if (isKeptBack(by, message)) return undefined
    switch (message.type) {
      case 'ready':
        by.holds(message.job, message.holds)
        if ((message.holds?.v ?? 0) > 0) world.counts.warmStarts++
        break
      case 'state':
        this.#checkClaim(by, message.job, message.claim)
        break
      case 'confirm':
        this.#confirmed(by, message)
        break
      case 'held':
        this.#checkHeld(by, message.job, message.record)
        break
      case 'abort':
        if (message.code === 'message-unexpected' && !this.wasRestored)
          world.violations.report('refusal', `${by.name} refuses what an honest member sent: ${message.message}`)
        break
      case 'proof':
        world.counts.proofs++
        break
      case 'prefetched':
        if (message.version !== null) world.counts.prefetches++
        break
      case 'gave-back':
        world.counts.gaveBack++
        break
      case 'unreadable':
        world.counts.unreadable++
        break
      default:
    }
    world.onMoment?.(by, { at: 'says', what: message.type })
    world.faults.onSaid(by, message.type)
    if (world.onMoment !== undefined) world.later(0, () => world.onMoment?.(by, { at: 'said', what: message.type }))
    return by.temper === 'wrong' && message.type === 'proof' ? { ...message, digest: WRONG } : message
  }

  /** A request of a member reaches the coordinator: beside a ring a push is that of an off-ring member (A1). */
  asks(method: string, path: string): void {
    const [, , jobs, id = '', what] = path.split('/')
    const run =
      method === 'POST' && jobs === 'jobs' && what === 'pushes' ? this.#world.runs.get(id as JobId) : undefined
    if (run?.chronicle.isAsync === false) run.ledger.isDamped = true
  }

  /** A request of a member was answered. */
  answered(_: VolunteerProcess, method: string, path: string, { status }: Response): void {
    const { counts } = this.#world
    if (method === 'PUT') counts.uploads++
    else if (method === 'POST' && path.includes('/push')) counts[status < 300 ? 'pushesTaken' : 'pushesRefused']++
    else if (path.includes('hashes=')) counts.sharedVersions++
    else if (path.includes('/versions/') && !path.includes('part=')) counts.coordinatorFetches++
  }

  refused(code: ErrorCode, what: string): void {
    if (NEVER.has(code) && !this.#mayBeRefused(what)) this.#world.violations.report('refusal', `${code}: ${what}`)
  }

  /** Of what odd members sent, and of generations that a restored journal does not know. */
  #mayBeRefused(what: string): boolean {
    if (this.wasRestored) return true
    return this.#world.volunteers.some(({ name, isHonest }) => !isHonest && what.startsWith(name))
  }

  troubled(text: string): void {
    this.#world.tell(() => `trouble: ${text}`)
    if (/defect|cannot be opened|internal/.test(text)) this.#world.violations.report('replay', text)
  }

  /** A volunteer ended with an error. */
  failed(volunteer: VolunteerProcess, error: unknown): void {
    if (volunteer.isHonest || !isGridError(error))
      this.#world.violations.report('refusal', `${volunteer.name} ends: ${String(error)}`)
  }

  #told(to: VolunteerProcess, { code, message }: { readonly code: ErrorCode; readonly message: string }): void {
    const isExcused = this.wasRestored || !to.isHonest
    if (code === 'digest-mismatch' && to.temper !== 'accomplice')
      this.#world.violations.report('I2', `${to.name} is told: ${message}`)
    else if (NEVER.has(code) && !isExcused)
      this.#world.violations.report('refusal', `${to.name} is told ${code}: ${message}`)
  }

  /** The ring that it runs in, if it does. */
  ringOf(volunteer: VolunteerProcess): RingSeen | undefined {
    for (const [job, { running, members }] of this.#deeds.get(volunteer) ?? [])
      if (running !== undefined && volunteer.isConnected)
        return { job, ...running, members, step: (volunteer.heldOf(job)?.v ?? 0) + 1 }
    return undefined
  }

  // ---- what members hold ----

  applied(
    by: VolunteerProcess,
    run: WatchedRun,
    { record, version }: { readonly record: StepRecord; readonly version: VersionRef },
  ): void {
    const deeds = this.#deedsOf(by, run.job.stored.id)
    const { counts } = this.#world
    const isRunning = deeds.running?.generation === record.generation
    const fence = (isRunning ? deeds.running?.fence : run.chronicle.fenceOf(record.generation)) ?? 0
    run.agree(by.name, record, { version, fence })
    if (!isRunning) counts.catchUps++
    if (isRunning && !by.isConnected && record.v === deeds.plannedTo) counts.plansExhausted++
    if (isRunning) this.#checkBarrier(by, run, record)
    this.#world.onMoment?.(by, { at: 'applied' })
  }

  adopted(by: VolunteerProcess, run: WatchedRun, version: VersionRef): void {
    this.#world.counts.stateFetches++
    this.#world.tell(() => `${by.name} adopts version ${version.v} of ${run.job.stored.id}`)
    this.#world.onMoment?.(by, { at: 'adopted' })
  }

  /** I2: no member finishes a step before all members of its generation hold the one before (R9). */
  #checkBarrier(by: VolunteerProcess, run: WatchedRun, { v, generation }: StepRecord): void {
    const { id } = run.job.stored
    const fence = this.#deedsOf(by, id).running?.fence
    for (const other of this.#world.volunteers) {
      const { running } = this.#deedsOf(other, id)
      if (running?.generation !== generation || running.fence !== fence) continue
      const held = other.heldOf(id)?.v ?? 0
      if (held < v - 1)
        this.#world.violations.report(
          'I2',
          `${by.name} is at ${v}, ${other.name} at ${held} in generation ${generation}`,
        )
    }
  }

  /** I6: what it claims leads to what it holds. */
  #checkClaim(by: VolunteerProcess, job: JobId, claim: Claim | null): void {
    const held = by.heldOf(job)
    if (claim === null || !by.isHonest) return
    const claimed = fold(claim.base, claim.records)
    if (claimed === undefined) return this.#world.violations.report('I6', `${by.name} claims records that do not fold`)
    if (claimed.v > 0 && (held === undefined || !sameVersion(claimed, held)))
      this.#world.violations.report('I6', `${by.name} claims version ${claimed.v} and holds ${held?.v ?? 'nothing'}`)
  }

  /** R10: HELD comes when the step is held whole. */
  #checkHeld(by: VolunteerProcess, job: JobId, record: StepRecord): void {
    const held = by.heldOf(job)
    if (held === undefined || held.v < record.v)
      this.#world.violations.report(
        'I6',
        `${by.name} says that it holds step ${record.v} and holds ${held?.v ?? 'nothing'}`,
      )
  }

  /** I2: all that confirm one version confirm the same bytes. */
  #confirmed(by: VolunteerProcess, message: Extract<OnWire<ToCoordinator>, { type: 'confirm' }>): void {
    const { job, generation, fence, version, digest } = message
    const deeds = this.#deedsOf(by, job)
    // an answer to the FORM before may come later: it was being digested
    if (generation >= (deeds.confirmed?.generation ?? 0)) deeds.confirmed = { generation, version }
    const held = by.heldOf(job)
    if (version.v > 0 && (held === undefined || !sameVersion(held, version)))
      this.#world.violations.report('I6', `${by.name} confirms version ${version.v} and holds ${held?.v ?? 'nothing'}`)
    const known = this.#digests.get(`${job} ${fence} ${generation} ${version.id}`) ?? digest
    this.#digests.set(`${job} ${fence} ${generation} ${version.id}`, known)
    if (known !== digest && by.isHonest && this.invented.size === 0)
      this.#world.violations.report('I2', `${by.name} confirms other bytes of version ${version.v} than others`)
  }

  /** I3, R8: who starts holds what is committed. */
  #checkStarted(
    by: VolunteerProcess,
    { job, generation, after }: Extract<OnWire<ToVolunteer>, { type: 'start' }>,
  ): void {
    const deeds = this.#deedsOf(by, job)
    if (deeds.promised !== generation) return
    const held = by.heldOf(job)
    if (after.v > 0 && (held === undefined || !sameVersion(held, after)))
      this.#world.violations.report(
        'I3',
        `generation ${generation} starts after version ${after.v}, ${by.name} is at ${held?.v ?? 'nothing'}`,
      )
  }

  // ---- what is written ----

  /** Before it takes effect. */
  written(run: WatchedRun, { entry, at }: JournalRow): void {
    if (entry.type === 'derived' && 'digest' in entry) this.#world.counts.derivedStates++
    if (entry.type === 'start') {
      for (const id of entry.members) this.#worked.add(`${run.job.stored.id} ${id}`)
      this.#checkConfirmed(run, entry)
    }
    if (entry.type === 'commit') this.#checkCommit(run, entry.records)
    // a final rewind gives up what one member alone vouches for (A5, disputes): that it is honest is not known
    if (entry.type === 'rewind' && entry.final !== true && !run.chronicle.justRestored) this.#checkRewind(run, at)
  }

  /** I3, R8: all members of a generation confirmed what its start commits. */
  #checkConfirmed(
    run: WatchedRun,
    {
      generation,
      members,
      records,
    }: { readonly generation: number; readonly members: readonly MemberId[]; readonly records: readonly StepRecord[] },
  ): void {
    let { head } = run.chronicle
    for (const record of records) head = extend(head, record)
    const { id } = run.job.stored
    for (const volunteer of this.#world.volunteers) {
      if (volunteer.member === undefined || !members.includes(volunteer.member) || !volunteer.isHonest) continue
      const { confirmed } = this.#deedsOf(volunteer, id)
      if (confirmed?.generation !== generation || !sameVersion(confirmed.version, head))
        this.#world.violations.report(
          'I3',
          `generation ${generation} starts after version ${head.v}, ` +
            `${volunteer.name} confirmed ${confirmed?.version.v ?? 'nothing'}`,
        )
    }
  }

  /** I3, R11: what a running generation commits is in all its members. */
  #checkCommit(run: WatchedRun, records: readonly StepRecord[]): void {
    const { id } = run.job.stored
    let { head } = run.chronicle
    for (const record of records) {
      head = extend(head, record)
      if (record.kind === 'async') continue
      for (const volunteer of this.#world.volunteers) {
        const { running } = this.#deedsOf(volunteer, id)
        const held = volunteer.heldOf(id)
        if (running?.generation !== record.generation || !volunteer.isHonest || this.wasRestored) continue
        if (held === undefined || !run.ledger.descends(held, head))
          this.#world.violations.report(
            'I3',
            `version ${head.v} is committed, and ${volunteer.name} runs in its generation at ${held?.v ?? 'nothing'}`,
          )
      }
    }
  }

  /** R3, R6, R17-stranded: no work is lost while there is a way to have it from a member that is reachable. */
  #checkRewind(run: WatchedRun, at: number): void {
    const { head } = run.chronicle
    const { id } = run.job.stored
    const state = this.#hostedState(id)
    for (const volunteer of this.#world.volunteers) {
      const held = volunteer.heldOf(id)
      const since = volunteer.member && state?.members.get(volunteer.member)?.joinedAt
      if (held === undefined || since === undefined || !volunteer.isConnected || !volunteer.isHonest) continue
      const stoodStill = volunteer.clock.standsStillUntil + STOOD_STILL_MS > this.#world.time.now
      if (at - since < IN_REACH_MS || stoodStill || !run.ledger.descends(held, head)) continue
      if (run.chronicle.isGivenUp(held) || !this.#world.canBeHadFrom(volunteer)) continue
      this.#world.violations.report(
        'lost-work',
        `version ${head.v} of ${id} is given up, ${volunteer.name} holds it and was connected`,
      )
    }
  }

  // ---- what the coordinator decides ----

  #hostedState(job: JobId): RunState | undefined {
    return this.#world.coordinator?.runs.find(job)?.state
  }

  /** After every event. */
  look(): void {
    const { coordinator, counts } = this.#world
    if (coordinator?.isOpen !== true) return
    for (const { job, state, history } of coordinator.runs.list()) {
      this.#tellNotes(job.id, history)
      const { phase, generation } = state
      const before = this.#phases.get(state)
      if (before?.type === 'lost' && phase.type !== 'lost' && before.generation === generation) counts.lateReturns++
      if (before?.type !== phase.type || before.generation !== generation)
        this.#phases.set(state, { type: phase.type, generation })
      if (phase.type === 'freeze') this.#claims.set(state, phase.claims)
      if (phase.type === 'form' && this.invented.size > 0) this.#checkOneVoice(coordinator, state)
    }
  }

  /** Why the coordinator does what it does. */
  #tellNotes(job: JobId, { events, eventCount }: ToldRun['history']): void {
    const isNew = this.#notesTold.get(events) !== eventCount
    if (!isNew) return
    const before = this.#notesTold.get(events) ?? 0
    this.#notesTold.set(events, eventCount)
    for (const { kind, text } of events.slice(-(eventCount - before)))
      this.#world.tell(() => `${job} notes, about its ${kind}: ${text}`)
  }

  /**
   * R5: an invented step is the target only where no lower claim that this journal can place holds what is committed.
   */
  #checkOneVoice({ runs }: CoordinatorProcess, state: RunState): void {
    const { phase, chain, rings, config } = state
    const ledger = this.#world.runs.get(config.job)?.ledger
    if (phase.type !== 'form' || ledger === undefined || runs.find(config.job)?.state !== state) return
    let version = chain.head
    for (const record of phase.records) {
      version = extend(version, record)
      const liar = this.invented.get(version.id)
      if (liar === undefined || rings.get(record.generation)?.length === 1) continue
      const self = this.#world.volunteerAt(liar)?.member
      const others = [...(this.#claims.get(state) ?? [])].flatMap(([id, claim]) => {
        const isPlaced = id !== self && claim !== null && claim.base.v <= chain.head.v
        const held = isPlaced ? fold(claim.base, claim.records) : undefined
        return held !== undefined && ledger.descends(held, chain.head) ? [held] : []
      })
      const isVouchedFor = others.some((held) => ledger.descends(held, version))
      if (!isVouchedFor && others.some(({ v }) => v < phase.target.v))
        this.#world.violations.report(
          'one-voice',
          `seat ${liar} alone claims version ${version.v}, and all are to hold it`,
        )
    }
  }

  /** R2: those that worked in a ring stop for no newcomer that is mute, or does not hold what it says. */
  #formed(
    coordinator: CoordinatorProcess,
    { job, members, generation, records }: Extract<OnWire<ToVolunteer>, { type: 'form' }>,
  ): void {
    if (records.length > 2 * PLAN_WINDOW)
      this.#world.violations.report('refusal', 'a FORM is longer than volunteers accept')
    if (coordinator !== this.#world.coordinator) return
    const hasWorked = (member: MemberId): boolean => this.#worked.has(`${job} ${member}`)
    const odd = this.#world.volunteers.find(
      ({ member, temper }) =>
        (temper === 'mute' || temper === 'wrong') &&
        member !== undefined &&
        members.includes(member) &&
        !hasWorked(member),
    )
    if (odd !== undefined && members.some(hasWorked))
      this.#world.violations.report('newcomer', `generation ${generation} takes in ${odd.name}, which is ${odd.temper}`)
  }

  /** R1: what it made of its folder is what all rows together make. */
  opened(coordinator: CoordinatorProcess): void {
    if (!coordinator.isOpen || coordinator !== this.#world.coordinator) return
    for (const host of coordinator.runs.list()) {
      const taken = this.#world.disk.takenOver.get(host.job.id)
      if (taken !== undefined) checkStart(this.#world, host, taken)
      if (host.state.mode === 'async') this.#world.counts.serverRestarts++
    }
  }

  #deedsOf(volunteer: VolunteerProcess, job: JobId): Deeds {
    const all = this.#deeds.get(volunteer) ?? new Map<JobId, Deeds>()
    this.#deeds.set(volunteer, all)
    const known = all.get(job)
    if (known !== undefined) return known
    const fresh: Deeds = { promised: 0, running: undefined, confirmed: undefined, members: [], plannedTo: 0 }
    all.set(job, fresh)
    return fresh
  }
}

/** A plan, like leases, ends with its epoch (R13). */
function noteEpoch(volunteer: VolunteerProcess, blocks: readonly BlockId[] | undefined): void {
  const last = blocks?.at(-1)
  if (last !== undefined) volunteer.epoch = epochOf(last)
}

/** No digest of anything. */
const WRONG = '0'.repeat(64) as Sha256
/** What a mute newcomer still says. */
const MUTE_SAYS: ReadonlySet<string> = new Set<ToCoordinator['type']>(['hello', 'ready', 'heartbeat', 'state'])

function isKeptBack({ temper }: VolunteerProcess, { type }: OnWire<ToCoordinator>): boolean {
  if (temper === 'mute') return !MUTE_SAYS.has(type)
  return temper === 'wrong' && type === 'lease-request' // no push speaks for it either
}
