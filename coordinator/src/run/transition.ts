// One turn of the reducer: collects effects in order and keeps journal and state together.
import type { ErrorCode, MemberId, RunEvent, Sha256, ToVolunteer, VersionRef } from '@starling-grid/protocol'
import { applyEntry } from './journal-replay.ts'
import type { Effect, JournalEntry, RunState } from './state.ts'

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

export class Transition {
  readonly followUps: FollowUp[] = []
  readonly state: RunState
  readonly now: number
  readonly effects: Effect[] = []

  constructor(state: RunState, now: number) {
    this.state = state
    this.now = now
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
