// One turn of the reducer: collects effects in order and keeps journal and state together.
import type {
  BlockId,
  ErrorCode,
  MemberId,
  MessageFrom,
  RunEvent,
  Sha256,
  ToVolunteer,
  VersionRef,
} from '@starling-grid/protocol'
import { applyEntry } from './journal-replay.ts'
import type { Effect, JournalEntry, Member, RunInput, RunMessage, RunState, Slices } from './state.ts'

/** The state that a member handed over to the parameter server, and how many hold the same. */
export interface Handed {
  readonly version: VersionRef
  readonly blob: Sha256
  readonly bytes: number
  readonly agreeing: number
  readonly members: number
}

/** What a handler asks run.ts to do next, so that handlers need not import each other. */
export type FollowUp =
  /** open the next ballot; a trouble counts towards the fallback to async (R17) */
  | { readonly type: 'ballot'; readonly reason: string; readonly trouble: boolean }
  /** enough answers: choose the version (R5) */
  | { readonly type: 'decide' }
  /** plan, validate, checkpoint or finish, whatever the chain asks for */
  | { readonly type: 'advance' }
  /** the parameter server takes over at its checkpoint (A5) */
  | { readonly type: 'enter-async'; readonly handed?: Handed }

/**
 * One aspect of a run: a row of ASPECTS (aspects.ts). Where several rows have a hook it runs in their order; `state` is
 * of now.
 */
export interface Aspect {
  /** its part of the state */
  readonly initial?: () => Partial<Slices>
  readonly on?: {
    readonly [T in RunInput['type']]?: (transition: Transition, input: Extract<RunInput, { type: T }>) => void
  }
  /** messages of the present generation (R3) */
  readonly hear?: {
    readonly [T in RunMessage['type']]?: (transition: Transition, member: MemberId, message: MessageFrom<T>) => void
  }
  /** time passed; a row that asks for a follow-up ends the tick */
  readonly tick?: (transition: Transition) => void
  /** the chain, the members or the work in hand changed */
  readonly advance?: (transition: Transition) => void
  /** why nothing more is planned now, in a sentence; the row does what is to be done instead */
  readonly holds?: (transition: Transition) => string | undefined
  /** it is no member any more */
  readonly memberLost?: (transition: Transition, member: Member) => void
  /** a ballot opens (R2) */
  readonly frozen?: (transition: Transition) => void
  /** a generation of these members starts (R8), after its records are committed */
  readonly started?: (transition: Transition, members: readonly MemberId[]) => void
  /** the running generation committed steps, up to the head */
  readonly committed?: (transition: Transition) => void
  /** a rewind cut the chain off (R6), or the parameter server takes over (A5) */
  readonly rewound?: (transition: Transition, why: 'rewind' | 'async') => void
  readonly plan?: PlanLimits
}

/** What an aspect has to say to the plan of a running generation. */
export interface PlanLimits {
  /** no plan has this block (R12) */
  readonly isTaken?: (state: RunState, block: BlockId) => boolean
  /** blocks of a step, instead of the job's */
  readonly batchBlocks?: (state: RunState) => number | undefined
  /** steps to plan ahead of C, of the `window` that others allow */
  readonly window?: (state: RunState, window: number, now: number) => number
  /** blocks that a record may hold beyond its planned ones: all of these or none */
  readonly beyond?: (state: RunState) => readonly BlockId[]
  /** nothing is left to plan; true: what this row called back may be */
  readonly recall?: (transition: Transition) => boolean
}

export class Transition {
  readonly followUps: FollowUp[] = []
  readonly state: RunState
  readonly now: number
  readonly effects: Effect[] = []
  readonly aspects: readonly Aspect[]

  constructor(state: RunState, now: number, aspects: readonly Aspect[]) {
    this.state = state
    this.now = now
    this.aspects = aspects
  }

  /** R1: applied to the state now, durable before any later effect leaves. */
  journal(...entries: JournalEntry[]): void {
    for (const entry of entries) applyEntry(this.state, entry, this.now)
    this.effects.push({ type: 'journal', entries })
  }

  send(to: MemberId, message: ToVolunteer): void {
    this.effects.push({ type: 'send', to, message })
  }

  broadcast(to: Iterable<MemberId>, message: ToVolunteer): void {
    for (const member of to) this.send(member, message)
  }

  refuse(to: MemberId, code: ErrorCode, message: string): void {
    this.effects.push({ type: 'refuse', to, code, message })
  }

  note(kind: RunEvent['kind'], text: string): void {
    this.effects.push({ type: 'note', kind, text })
  }

  effect(effect: Effect): void {
    this.effects.push(effect)
  }

  /** Every aspect is told what happened. */
  tell(what: (aspect: Aspect) => void): void {
    for (const aspect of this.aspects) what(aspect)
  }

  enqueue(next: FollowUp): void {
    this.followUps.push(next)
  }

  reason(text: string): void {
    this.state.phaseReason = text
  }

  /** What every message to a member carries (R3). */
  get ballot(): { readonly fence: number; readonly generation: number } {
    return { fence: this.state.fence, generation: this.state.generation }
  }
}
