// A member's side of the protocol: FREEZE → STATE, FORM → CONFIRM, START → steps (R3, R7, R9, R10). `react` changes the
// state that it is given and returns what is to be done, in order. `adopt` and `apply` must be carried out at once,
// before any other input: what the member claims and what its parameters hold change together (I6).
import {
  type Claim,
  extend,
  fold,
  isLinkTrouble,
  type Manifest,
  type MemberId,
  type MessageFrom,
  type MessageTo,
  PLAN_WINDOW,
  type Sha256,
  sameVersion,
  assignmentsOfStep,
  type StepRecord,
  type ToCoordinator,
  type FetchRequest,
  type VersionRef,
} from '@starling-grid/protocol'
import {
  askForHelp,
  onRelease,
  onHold,
  newFlight,
  onMoved,
  wrongAssignment,
  onBegin,
  onSeal,
  type StepId,
} from './assignment.ts'
import { settle } from './committed.ts'
import { adopt, catchUp, confirmIfReady, fetchWhole, onForm } from './forming.ts'
import { givenIn, mayFetch, onGiven, onGivenFetched } from './given-sums.ts'
import { copyDue, onFollow, onLearnerReduced, onPrefetch, onLearnerState, learningFailed, prove } from './learner.ts'
import type { ControlMessage, Flight, MemberCore, MemberEffect, MemberGeneration, MemberInput } from './member-state.ts'

export function createMember(id: MemberId, genesis: VersionRef, replayMost = 1): MemberCore {
  return {
    id,
    replayMost,
    fence: 0,
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
      return onControlMessage(core, input.order)
    case 'links-open':
      return whileForming(core, input.generation, (ring) => {
        ring.linksOpen = true
        return confirmIfReady(core, ring)
      })
    case 'state-fetched':
      return core.learning === undefined
        ? whileForming(core, input.generation, (ring) => adopt(core, ring, input.version))
        : onLearnerState(core, input.generation, input.version)
    case 'reduced-fetched':
      return core.learning === undefined
        ? whileForming(core, input.generation, (ring) => catchUp(core, ring, input.version))
        : onLearnerReduced(core, input.generation, input.version)
    case 'reduced-missing':
      return core.learning === undefined
        ? whileForming(core, input.generation, (ring) => fetchWhole(core, ring))
        : learningFailed(core, input.generation)
    case 'behind':
      return current(core, input.generation, (ring) => answer(askForHelp(ring, input.step, input.blockMs)))
    case 'given-fetched':
      return current(core, input.generation, (ring) => {
        onGivenFetched(ring, input.id)
        return []
      })
    case 'begin':
      return inFlight(core, input, 'computing', (_, flight) => {
        onBegin(flight, input.blocks, input.blockMs)
        return []
      })
    case 'seal':
      return inFlight(core, input, 'computing', (ring, flight) => {
        onSeal(ring, flight, input.blockMs)
        return []
      })
    case 'learned':
      return current(core, input.generation, () => {
        core.consumed = input.consumed
        return []
      })
    case 'computed':
      return inFlight(core, input, 'computing', (ring, flight) => onComputed(core, ring, flight, input))
    case 'reduced':
      return inFlight(core, input, 'reducing', (ring) => onReduced(core, ring, input))
    case 'trouble':
      return core.learning === undefined ? giveUp(core, input) : learningFailed(core, input.generation)
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
  generation: number,
  version: VersionRef,
  kind: FetchRequest['kind'] = 'state',
): boolean {
  if (kind !== 'state') return kind === 'reduced' && core.promised === generation
  return core.promised === generation && core.version !== undefined && sameVersion(core.version, version)
}

// oxlint-disable-next-line max-lines-per-function -- a flat switch over messages, a line or two for each
function onControlMessage(core: MemberCore, order: ControlMessage): MemberEffect[] {
  if (order.fence < core.fence) return outdated(core, order) // R3: a deposed coordinator
  switch (order.type) {
    case 'freeze':
      return onFreeze(core, order)
    case 'form':
      return onForm(core, order)
    case 'start':
      return onStart(core, order)
    case 'plan':
      return onPlan(core, order)
    case 'rebalance':
      return current(core, order.generation, (ring) => answer(onHold(ring, order)))
    case 'inquire':
      return current(core, order.generation, (ring) => [
        {
          type: 'report-standing',
          fence: ring.fence,
          generation: ring.generation,
          step: order.step,
          stage: stageOf(core, ring, order.step),
        },
      ])
    case 'rebalance-release':
      return current(core, order.generation, (ring) => answer(onRelease(ring, order)))
    case 'rebalance-done':
      return current(core, order.generation, (ring) =>
        onMoved(ring, order) ? [{ type: 'resume', generation: order.generation, step: order.step }] : [],
      )
    case 'off-ring':
      return current(core, order.generation, (ring) => answer(onGiven(ring, order)))
    case 'off-ring-take':
      return current(core, order.generation, (ring) =>
        mayFetch(ring, order) ? [{ type: 'fetch-given', generation: order.generation, id: order.id }] : [],
      )
    case 'last-step':
      return current(core, order.generation, (ring) => {
        ring.lastStep = order.step
        return []
      })
    case 'ack':
      return onAck(core, order.committed)
    case 'checkpoint-at':
      return current(core, order.generation, (ring) => {
        ring.checkpoint = order
        return checkpointIfDue(core, ring)
      })
    case 'copy-at':
      return current(core, order.generation, (ring) => {
        ring.copyAt = order
        return copyDue(core)
      })
    case 'meet': // a source outside the ring has no generation of its own
      if (order.generation !== core.promised) return []
      return [{ type: 'meet', generation: order.generation, members: order.members, relayed: order.relayed ?? [] }]
    case 'prove':
      return prove(core, order)
    case 'prefetch':
      return onPrefetch(core, order)
    case 'follow':
      return onFollow(core, order)
    case 'upload-request':
      return onUploadRequest(core, order)
    case 'async':
      return onAsync(core, order)
    default:
      return order satisfies never
  }
}

/**
 * R3: not obeyed. A deposed coordinator cannot use the answer, since its appends fail; one whose journal was restored
 * from a backup goes on above these numbers.
 */
function outdated({ fence, promised }: MemberCore, order: ControlMessage): MemberEffect[] {
  if (order.type !== 'freeze' && order.type !== 'async') return []
  const ballot = { fence: order.fence, generation: order.generation }
  return [{ type: 'send', message: { type: 'promised', ...ballot, seen: { fence, generation: promised } } }]
}

/**
 * What it says to hold, with the records that prove it (R4). They begin at `committed` where that is below what was
 * acknowledged, and the records since are still kept.
 */
export function claimOf({ version, base, tail, past }: MemberCore, committed = base.v): Claim | null {
  if (version === undefined) return null
  const skipped = committed - past.base.v
  const from = committed < base.v && skipped >= 0 ? fold(past.base, past.records.slice(0, skipped)) : undefined
  if (from === undefined) return { base, records: [...tail] }
  return { base: from, records: [...past.records.slice(skipped), ...tail] }
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
function onFreeze(core: MemberCore, order: MessageTo<'freeze'>): MemberEffect[] {
  const { fence, generation, committed } = order
  // A coordinator process begins with a number of its own: one that was promised to another is in use (I7).
  if (generation < core.promised || (generation === core.promised && fence > core.fence)) return outdated(core, order)
  core.fence = fence
  core.promised = generation
  core.asyncEpoch = undefined
  const claim = claimOf(core, committed)
  const { consumed } = core
  const isFresh = consumed !== undefined && core.version !== undefined && sameVersion(consumed.base, core.version)
  core.ring = undefined
  core.learning = undefined
  core.proving = undefined
  return [
    { type: 'halt' },
    { type: 'send', message: { type: 'state', fence, generation, claim, ...(isFresh ? { consumed } : {}) } },
  ]
}

/**
 * R9: contribute only with START of the promised generation, holding its first version whole. As long as the
 * coordinator keeps R8 this always holds, so it is asserted and no schedule can miss it. `ring` is of the promised
 * generation, because a FREEZE that raises the promise ends it (R3). START comes after the CONFIRM of each member, and
 * a member confirms when it holds the target, stage `ready` (R8). Between the two its version changes only through FORM
 * of this ballot, which names the same target (R3). One step begins after the other, each at the version before it.
 * What it prevents shows where R8 is broken as well.
 */
function onStart(core: MemberCore, order: MessageTo<'start'>): MemberEffect[] {
  const { ring } = core
  if (ring === undefined || ring.generation !== order.generation || ring.stage === 'running' || ring.stage === 'broken')
    return []
  const premise =
    ring.stage === 'ready' &&
    order.generation === core.promised &&
    core.version !== undefined &&
    sameVersion(core.version, order.after)
  if (!premise) return []
  ring.stage = 'running'
  settle(core, order.after)
  for (const step of order.plan) ring.plan.set(step.step, { ...step, weights: ring.weights })
  return [...checkpointIfDue(core, ring), ...beginStep(core, ring)]
}

function onPlan(core: MemberCore, order: MessageTo<'plan'>): MemberEffect[] {
  return current(core, order.generation, (ring) => {
    const { steps, weights = ring.weights } = order
    if (weights.length !== ring.members.length) return []
    for (const step of steps) if (!ring.plan.has(step.step)) ring.plan.set(step.step, { ...step, weights })
    return beginStep(core, ring)
  })
}

/** The next planned step, unless one is under way or the tail is as long as a member may be ahead (W, R14). */
function beginStep(core: MemberCore, ring: MemberGeneration): MemberEffect[] {
  const step = (core.version?.v ?? 0) + 1
  const planned = ring.plan.get(step)
  if (
    ring.stage !== 'running' ||
    ring.flight !== undefined ||
    planned === undefined ||
    step > ring.lastStep ||
    core.tail.length >= PLAN_WINDOW
  )
    return []
  const blocks = assignmentsOfStep(planned, planned.weights)[ring.rank] ?? []
  ring.flight = newFlight(step, blocks)
  return [{ type: 'compute', generation: ring.generation, step, kind: ring.kind, blocks }]
}

function onComputed(
  core: MemberCore,
  ring: MemberGeneration,
  flight: Flight,
  { step, manifest, finite }: Extract<MemberInput, { type: 'computed' }>,
): MemberEffect[] {
  if (!finite)
    return giveUp(core, {
      generation: ring.generation,
      blamed: core.id,
      why: 'own',
      code: 'gradient-not-finite',
      message: `my gradient of step ${step} is not finite`,
    })
  if (!flight.sealed) throw new Error(`internal: the assignment of step ${step} is not complete`)
  flight.stage = 'reducing'
  return [{ type: 'contribute', generation: ring.generation, step, manifest }]
}

/** R10: everything of the step arrived: apply, swap, then HELD. */
function onReduced(
  core: MemberCore,
  ring: MemberGeneration,
  { step, manifests, gradDigest }: Extract<MemberInput, { type: 'reduced' }>,
): MemberEffect[] {
  if (core.version === undefined || core.version.v !== step - 1) return []
  const liar = wrongAssignment(ring, step, manifests)
  if (liar !== undefined)
    return giveUp(core, {
      generation: ring.generation,
      blamed: liar,
      why: 'refused',
      code: 'message-unexpected',
      message: `an assignment of step ${step} does not hold its planned blocks`,
    })
  const record = recordOf(ring, step, manifests, gradDigest)
  const version = extend(core.version, record)
  const given = givenIn(ring, manifests)
  if (given !== undefined) given.stage = 'done'
  core.version = version
  core.tail.push(record)
  ring.flight = undefined
  ring.plan.delete(step)
  ring.moves.delete(step)
  const held: MemberEffect = {
    type: 'send',
    message: { type: 'held', fence: ring.fence, generation: ring.generation, record },
  }
  return [
    { type: 'apply', record, version },
    held,
    ...checkpointIfDue(core, ring),
    ...copyDue(core),
    ...beginStep(core, ring),
  ]
}

/**
 * Every member builds the same record: the planned blocks of all members (R12), those of a given sum (A1), and the
 * sums of the manifests.
 */
function recordOf(
  ring: MemberGeneration,
  step: number,
  manifests: readonly Manifest[],
  gradDigest: Sha256,
): StepRecord {
  const sum = (pick: (manifest: Manifest) => number): number =>
    manifests.reduce((total, manifest) => total + pick(manifest), 0)
  const planned = ring.plan.get(step)
  return {
    v: step,
    generation: ring.generation,
    modeEpoch: ring.modeEpoch,
    kind: ring.kind,
    blocks: [...(planned?.blocks ?? []), ...(givenIn(ring, manifests)?.blocks ?? [])],
    samples: sum((m) => m.samples),
    targets: sum((m) => m.targets),
    lossSum: sum((m) => m.lossSum),
    correct: sum((m) => m.correct),
    gradDigest,
    ...(planned?.scaling === undefined ? {} : { scaling: planned.scaling }),
  }
}

/** How far this member is with a step. */
function stageOf(
  { version }: MemberCore,
  { flight }: MemberGeneration,
  step: number,
): MessageFrom<'standing'>['stage'] {
  if (version !== undefined && version.v >= step) return 'held'
  return flight?.step === step && flight.stage === 'reducing' ? 'reducing' : 'computing'
}

/** The tail starts anew behind what is committed. */
function onAck(core: MemberCore, committed: VersionRef): MemberEffect[] {
  const acknowledged = fold(core.base, core.tail.slice(0, Math.max(0, committed.v - core.base.v)))
  if (acknowledged === undefined || !sameVersion(acknowledged, committed)) return []
  settle(core, committed)
  return core.ring === undefined ? [] : beginStep(core, core.ring)
}

/** A5: one holder uploads, the others vouch for it. */
function onUploadRequest(
  core: MemberCore,
  { fence, generation, version, uploader }: MessageTo<'upload-request'>,
): MemberEffect[] {
  if (generation !== core.promised || core.version === undefined || !sameVersion(core.version, version)) return []
  return uploader === core.id ? [{ type: 'upload', version }] : [{ type: 'report-digest', fence, generation, version }]
}

/** R15: at the named version one member uploads, the others say their digest. */
function checkpointIfDue(core: MemberCore, ring: MemberGeneration): MemberEffect[] {
  const { version } = core
  if (ring.stage !== 'running' || version === undefined || ring.checkpoint?.v !== version.v) return []
  const { uploader } = ring.checkpoint
  ring.checkpoint = undefined
  return uploader === core.id
    ? [{ type: 'upload', version }]
    : [{ type: 'report-digest', fence: ring.fence, generation: ring.generation, version }]
}

function onAsync(core: MemberCore, order: MessageTo<'async'>): MemberEffect[] {
  const { fence, generation, modeEpoch } = order
  if (generation < core.promised) return outdated(core, order)
  core.fence = fence
  core.promised = generation
  core.ring = undefined
  core.learning = undefined
  core.proving = undefined
  core.asyncEpoch = modeEpoch
  return [{ type: 'halt' }, { type: 'send', message: { type: 'lease-request', modeEpoch } }]
}

/** One ABORT per generation, which names the blamed member and the reason (R17); then wait for the next ballot. */
function giveUp(core: MemberCore, trouble: Omit<Extract<MemberInput, { type: 'trouble' }>, 'type'>): MemberEffect[] {
  return current(core, trouble.generation, (ring) => {
    if (ring.stage === 'broken') return []
    ring.stage = 'broken'
    const { blamed, alsoBlamed = [], why, code, message } = trouble
    const step = (core.version?.v ?? 0) + 1
    const links = isLinkTrouble(why) && blamed !== null ? [blamed, ...alsoBlamed] : []
    return [
      { type: 'halt' },
      {
        type: 'send',
        message: {
          type: 'abort',
          fence: ring.fence,
          generation: ring.generation,
          step,
          blamed,
          why,
          links,
          code,
          message,
        },
      },
    ]
  })
}

function answer(message: ToCoordinator | undefined): MemberEffect[] {
  return message === undefined ? [] : [{ type: 'send', message }]
}

function current(
  core: MemberCore,
  generation: number,
  act: (ring: MemberGeneration) => MemberEffect[],
): MemberEffect[] {
  return core.ring === undefined || core.ring.generation !== generation || generation !== core.promised
    ? []
    : act(core.ring)
}

function whileForming(
  core: MemberCore,
  generation: number,
  act: (ring: MemberGeneration) => MemberEffect[],
): MemberEffect[] {
  return current(core, generation, (ring) => (ring.stage === 'forming' ? act(ring) : []))
}

function inFlight(
  core: MemberCore,
  { generation, step }: StepId,
  stage: Flight['stage'],
  act: (ring: MemberGeneration, flight: Flight) => MemberEffect[],
): MemberEffect[] {
  return current(core, generation, (ring) => {
    const { flight } = ring
    return ring.stage === 'running' && flight?.step === step && flight.stage === stage ? act(ring, flight) : []
  })
}
