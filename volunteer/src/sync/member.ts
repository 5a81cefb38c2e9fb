// A member's side of the protocol: FREEZE → STATE, FORM → CONFIRM, START → steps (R3, R7, R9, R10). `react` changes the
// state that it is given and returns what is to be done, in order. `adopt` and `apply` must be carried out at once,
// before any other input: what the member claims and what its parameters hold change together (I6).
import {
  ALL_RULES_ON,
  type Claim,
  extend,
  fold,
  isLinkTrouble,
  type Manifest,
  type MemberId,
  type MessageFrom,
  type MessageTo,
  PLAN_WINDOW,
  type RulesOff,
  type Sha256,
  sameVersion,
  sharesOfStep,
  type StepRecord,
  type ToCoordinator,
  type VersionRef,
} from '@starling-grid/protocol'
import { settle } from './committed.ts'
import { adopt, catchUp, confirmIfReady, fetchWhole, form } from './forming.ts'
import { copyDue, follow, followed, learn, learned, learningFailed, prove } from './learner.ts'
import type { MemberCore, MemberEffect, MemberInput, RingView, RunOrder } from './member-state.ts'
import {
  askForHelp,
  giveUpBlocks,
  guestHere,
  guestIn,
  holdBack,
  newFlight,
  noteGuest,
  takeMoves,
  wrongShare,
} from './share.ts'

export function createMember(
  id: MemberId,
  genesis: VersionRef,
  off: RulesOff = ALL_RULES_ON,
  replayMost = 1,
): MemberCore {
  return {
    id,
    off,
    replayMost,
    owner: 0,
    promised: 0,
    version: undefined,
    base: genesis,
    tail: [],
    past: { base: genesis, records: [] },
    consumed: undefined,
    ring: undefined,
    learning: undefined,
    proving: undefined,
    asyncEpoch: undefined,
  }
}

export function react(core: MemberCore, input: MemberInput): MemberEffect[] {
  switch (input.type) {
    case 'order':
      return obey(core, input.order)
    case 'links-open':
      return whileForming(core, input.gen, (ring) => {
        ring.linksOpen = true
        return confirmIfReady(core, ring)
      })
    case 'state-fetched':
      return core.learning === undefined
        ? whileForming(core, input.gen, (ring) => adopt(core, ring, input.version))
        : learned(core, input.gen, input.version)
    case 'reduced-fetched':
      return core.learning === undefined
        ? whileForming(core, input.gen, (ring) => catchUp(core, ring, input.version))
        : followed(core, input.gen, input.version)
    case 'reduced-missing':
      return core.learning === undefined
        ? whileForming(core, input.gen, (ring) => fetchWhole(core, ring))
        : learningFailed(core, input.gen)
    case 'behind':
      return current(core, input.gen, (ring) => answer(askForHelp(ring, input.step, input.blockMs)))
    case 'guest-fetched':
      return current(core, input.gen, (ring) => {
        guestHere(ring, input.id)
        return []
      })
    case 'computed':
      return inFlight(core, input, (ring) => contribute(core, ring, input))
    case 'reduced':
      return inFlight(core, input, (ring) => hold(core, ring, input))
    case 'trouble':
      return core.learning === undefined ? giveUp(core, input) : learningFailed(core, input.gen)
    default:
      return input satisfies never
  }
}

/**
 * R7: only while the asker's ballot is the promised one and the version is held whole. The sum of a step stays right
 * whatever is held now.
 */
export function mayServe(
  core: MemberCore,
  gen: number,
  version: VersionRef,
  kind: 'state' | 'reduced' = 'state',
): boolean {
  if (core.off.has('R7-source')) return core.version !== undefined
  if (kind === 'reduced') return core.promised === gen
  return core.promised === gen && core.version !== undefined && sameVersion(core.version, version)
}

function obey(core: MemberCore, order: RunOrder): MemberEffect[] {
  if (order.owner < core.owner) return outdated(core, order) // R3: a deposed coordinator
  switch (order.type) {
    case 'freeze':
      return freeze(core, order)
    case 'form':
      return form(core, order)
    case 'start':
      return start(core, order)
    case 'plan':
      return extendPlan(core, order)
    case 'hold':
      return current(core, order.gen, (ring) => answer(holdBack(ring, order)))
    case 'inquire':
      return current(core, order.gen, (ring) => [
        {
          type: 'report-standing',
          owner: ring.owner,
          gen: ring.gen,
          step: order.step,
          stage: stageOf(core, ring, order.step),
        },
      ])
    case 'release':
      return current(core, order.gen, (ring) => answer(giveUpBlocks(ring, order, core.off)))
    case 'moved':
      return current(core, order.gen, (ring) =>
        takeMoves(ring, order) ? [{ type: 'resume', gen: order.gen, step: order.step }] : [],
      )
    case 'guest':
      return current(core, order.gen, (ring) => answer(noteGuest(ring, order)))
    case 'guest-take':
      return current(core, order.gen, (ring) =>
        ring.guests.get(order.id)?.place === ring.position
          ? [{ type: 'fetch-guest', gen: order.gen, id: order.id }]
          : [],
      )
    case 'until':
      return current(core, order.gen, (ring) => {
        ring.until = order.step
        return []
      })
    case 'ack':
      return acknowledge(core, order.committed)
    case 'checkpoint-at':
      return current(core, order.gen, (ring) => {
        ring.checkpoint = order
        return checkpointIfDue(core, ring)
      })
    case 'copy-at':
      return current(core, order.gen, (ring) => {
        ring.copyAt = order
        return copyDue(core)
      })
    case 'meet':
      return current(core, order.gen, () => [{ type: 'meet', gen: order.gen, members: order.members }])
    case 'prove':
      return prove(core, order)
    case 'prefetch':
      return learn(core, order)
    case 'follow':
      return follow(core, order)
    case 'upload-request':
      return handOver(core, order)
    case 'async':
      return goAsync(core, order)
    default:
      return order satisfies never
  }
}

/**
 * R3: not obeyed. A deposed coordinator cannot use the answer, since its appends fail; one whose journal was restored
 * from a backup goes on above these numbers.
 */
function outdated({ owner, promised }: MemberCore, order: RunOrder): MemberEffect[] {
  if (order.type !== 'freeze' && order.type !== 'async') return []
  const ballot = { owner: order.owner, gen: order.gen }
  return [{ type: 'send', message: { type: 'promised', ...ballot, seen: { owner, gen: promised } } }]
}

/**
 * What it says to hold, with the records that prove it (R4): from `committed` on where that is below what was
 * acknowledged, and the records since are still here.
 */
export function claimOf({ version, base, tail, past }: MemberCore, committed = base.v): Claim | null {
  if (version === undefined) return null
  const known = committed - past.base.v
  const from = committed < base.v && known >= 0 ? fold(past.base, past.records.slice(0, known)) : undefined
  if (from === undefined) return { base, records: [...tail] }
  return { base: from, records: [...past.records.slice(known), ...tail] }
}

/**
 * A warm start with what was claimed on an earlier visit. False: it does not lead to `version`, and nothing changed.
 */
export function goOnFrom(core: MemberCore, { base, records }: Claim, version: VersionRef): boolean {
  const reached = fold(base, records)
  if (reached === undefined || !sameVersion(reached, version)) return false
  core.version = version
  core.base = base
  core.tail = [...records]
  core.past = { base, records: [] }
  return true
}

/**
 * R3: promise, stop, answer. From here on the version changes only through FORM of this ballot. An equal one is
 * answered again.
 */
function freeze(core: MemberCore, order: MessageTo<'freeze'>): MemberEffect[] {
  const { owner, gen, committed } = order
  // A coordinator process begins with a number of its own: one that was promised to another is in use (I7).
  if (gen < core.promised || (gen === core.promised && owner > core.owner)) return outdated(core, order)
  if (core.off.has('R3-equal') && gen === core.promised) return []
  core.owner = owner
  core.promised = gen
  core.asyncEpoch = undefined
  const claim = claimOf(core, committed)
  const { consumed } = core
  const here = consumed !== undefined && core.version !== undefined && sameVersion(consumed.base, core.version)
  core.ring = undefined
  core.learning = undefined
  core.proving = undefined
  return [
    { type: 'halt' },
    { type: 'send', message: { type: 'state', owner, gen, claim, ...(here ? { consumed } : {}) } },
  ]
}

/**
 * R9: contribute only with START of the promised generation, holding its first version whole. As long as the
 * coordinator keeps R8 this always holds, so it is asserted and no schedule can miss it: `ring` is of the promised
 * generation, because a FREEZE that raises the promise ends it (R3); START comes after the CONFIRM of each member, and
 * a member confirms when it holds the target, stage `ready` (R8); between the two its version changes only through FORM
 * of this ballot, which names the same target (R3); and one step begins after the other, each at the version before it.
 * What it prevents shows where R8 is broken as well.
 */
function start(core: MemberCore, order: MessageTo<'start'>): MemberEffect[] {
  const { ring } = core
  if (ring === undefined || ring.gen !== order.gen || ring.stage === 'running' || ring.stage === 'broken') return []
  const premise =
    ring.stage === 'ready' &&
    order.gen === core.promised &&
    core.version !== undefined &&
    sameVersion(core.version, order.after)
  if (!premise && !core.off.has('R9')) return []
  ring.stage = 'running'
  settle(core, order.after)
  for (const step of order.plan) ring.plan.set(step.step, { ...step, shares: ring.shares })
  return [...checkpointIfDue(core, ring), ...beginStep(core, ring)]
}

function extendPlan(core: MemberCore, order: MessageTo<'plan'>): MemberEffect[] {
  return current(core, order.gen, (ring) => {
    const { steps, shares = ring.shares } = order
    if (shares.length !== ring.members.length) return []
    for (const step of steps) if (!ring.plan.has(step.step)) ring.plan.set(step.step, { ...step, shares })
    return beginStep(core, ring)
  })
}

/** The next planned step, unless one is under way or the tail is as long as a member may be ahead (W, R14). */
function beginStep(core: MemberCore, ring: RingView): MemberEffect[] {
  const step = (core.version?.v ?? 0) + 1
  const planned = ring.plan.get(step)
  if (
    ring.stage !== 'running' ||
    ring.flight !== undefined ||
    planned === undefined ||
    step > ring.until ||
    core.tail.length >= PLAN_WINDOW
  )
    return []
  const blocks = sharesOfStep(planned, planned.shares)[ring.position] ?? []
  ring.flight = newFlight(step, blocks)
  return [{ type: 'compute', gen: ring.gen, step, kind: ring.kind, blocks }]
}

function contribute(
  core: MemberCore,
  ring: RingView,
  { step, manifest, finite }: Extract<MemberInput, { type: 'computed' }>,
): MemberEffect[] {
  if (!finite)
    return giveUp(core, {
      gen: ring.gen,
      blamed: core.id,
      why: 'own',
      code: 'gradient-not-finite',
      message: `my gradient of step ${step} is not finite`,
    })
  if (ring.flight?.sealed !== true) throw new Error(`internal: the share of step ${step} is not complete`)
  ring.flight.stage = 'reducing'
  return [{ type: 'contribute', gen: ring.gen, step, manifest }]
}

/** R10: everything of the step arrived: apply, swap, then HELD. */
function hold(
  core: MemberCore,
  ring: RingView,
  { step, manifests, gradDigest }: Extract<MemberInput, { type: 'reduced' }>,
): MemberEffect[] {
  if (core.version === undefined || core.version.v !== step - 1) return []
  const liar = core.off.has('R12-moves') ? undefined : wrongShare(ring, step, manifests)
  if (liar !== undefined)
    return giveUp(core, {
      gen: ring.gen,
      blamed: liar,
      why: 'refused',
      code: 'message-unexpected',
      message: `a share of step ${step} does not hold its planned blocks`,
    })
  const record = recordOf(ring, step, manifests, gradDigest)
  const version = extend(core.version, record)
  const guest = guestIn(ring, manifests)
  if (guest !== undefined) guest.stage = 'done'
  core.version = version
  core.tail.push(record)
  ring.flight = undefined
  ring.plan.delete(step)
  ring.moves.delete(step)
  const held: MemberEffect = { type: 'send', message: { type: 'held', owner: ring.owner, gen: ring.gen, record } }
  return [
    { type: 'apply', record, version },
    held,
    ...checkpointIfDue(core, ring),
    ...copyDue(core),
    ...beginStep(core, ring),
  ]
}

/**
 * Every member builds the same record: the planned blocks of all members (R12), those of guests (A1), and the sums of
 * the manifests.
 */
function recordOf(ring: RingView, step: number, manifests: readonly Manifest[], gradDigest: Sha256): StepRecord {
  const sum = (pick: (manifest: Manifest) => number): number =>
    manifests.reduce((total, manifest) => total + pick(manifest), 0)
  return {
    v: step,
    gen: ring.gen,
    modeEpoch: ring.modeEpoch,
    kind: ring.kind,
    blocks: [...(ring.plan.get(step)?.blocks ?? []), ...(guestIn(ring, manifests)?.blocks ?? [])],
    samples: sum((m) => m.samples),
    targets: sum((m) => m.targets),
    lossSum: sum((m) => m.lossSum),
    correct: sum((m) => m.correct),
    gradDigest,
  }
}

/** How far this member is with a step. */
function stageOf({ version }: MemberCore, { flight }: RingView, step: number): MessageFrom<'standing'>['stage'] {
  if (version !== undefined && version.v >= step) return 'held'
  return flight?.step === step && flight.stage === 'reducing' ? 'reducing' : 'computing'
}

/** The tail starts anew behind what is committed. */
function acknowledge(core: MemberCore, committed: VersionRef): MemberEffect[] {
  const known = fold(core.base, core.tail.slice(0, Math.max(0, committed.v - core.base.v)))
  if (known === undefined || !sameVersion(known, committed)) return []
  settle(core, committed)
  return core.ring === undefined ? [] : beginStep(core, core.ring)
}

/** A5: one holder uploads, the others vouch for it. */
function handOver(core: MemberCore, { owner, gen, version, uploader }: MessageTo<'upload-request'>): MemberEffect[] {
  if (gen !== core.promised || core.version === undefined || !sameVersion(core.version, version)) return []
  return uploader === core.id ? [{ type: 'upload', version }] : [{ type: 'report-digest', owner, gen, version }]
}

/** R15: at the named version one member uploads, the others say their digest. */
function checkpointIfDue(core: MemberCore, ring: RingView): MemberEffect[] {
  const { version } = core
  if (ring.stage !== 'running' || version === undefined || ring.checkpoint?.v !== version.v) return []
  const { uploader } = ring.checkpoint
  ring.checkpoint = undefined
  return uploader === core.id
    ? [{ type: 'upload', version }]
    : [{ type: 'report-digest', owner: ring.owner, gen: ring.gen, version }]
}

function goAsync(core: MemberCore, order: MessageTo<'async'>): MemberEffect[] {
  const { owner, gen, modeEpoch } = order
  if (gen < core.promised) return outdated(core, order)
  core.owner = owner
  core.promised = gen
  core.ring = undefined
  core.learning = undefined
  core.proving = undefined
  core.asyncEpoch = modeEpoch
  return [{ type: 'halt' }, { type: 'send', message: { type: 'lease-request', modeEpoch } }]
}

/** One ABORT per generation, which names the blamed member and the reason (R17); then wait for the next ballot. */
function giveUp(core: MemberCore, trouble: Omit<Extract<MemberInput, { type: 'trouble' }>, 'type'>): MemberEffect[] {
  return current(core, trouble.gen, (ring) => {
    if (ring.stage === 'broken') return []
    ring.stage = 'broken'
    const { blamed, alsoBlamed = [], why, code, message } = trouble
    const step = (core.version?.v ?? 0) + 1
    const links = isLinkTrouble(why) && blamed !== null ? [blamed, ...alsoBlamed] : []
    return [
      { type: 'halt' },
      {
        type: 'send',
        message: { type: 'abort', owner: ring.owner, gen: ring.gen, step, blamed, why, links, code, message },
      },
    ]
  })
}

function answer(message: ToCoordinator | undefined): MemberEffect[] {
  return message === undefined ? [] : [{ type: 'send', message }]
}

function current(core: MemberCore, gen: number, act: (ring: RingView) => MemberEffect[]): MemberEffect[] {
  return core.ring === undefined || core.ring.gen !== gen || gen !== core.promised ? [] : act(core.ring)
}

function whileForming(core: MemberCore, gen: number, act: (ring: RingView) => MemberEffect[]): MemberEffect[] {
  return current(core, gen, (ring) => (ring.stage === 'forming' ? act(ring) : []))
}

function inFlight(
  core: MemberCore,
  { gen, step, type }: { readonly gen: number; readonly step: number; readonly type: 'computed' | 'reduced' },
  act: (ring: RingView) => MemberEffect[],
): MemberEffect[] {
  const expected = type === 'computed' ? 'computing' : 'reducing'
  return current(core, gen, (ring) =>
    ring.stage === 'running' && ring.flight?.step === step && ring.flight.stage === expected ? act(ring) : [],
  )
}
