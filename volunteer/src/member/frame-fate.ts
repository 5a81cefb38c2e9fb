// Generation fencing: what becomes of a frame, by what it says of itself and who sent it (R3). Pure.
import type { ErrorCode, Frame, MemberId } from '@starling-grid/protocol'
import { type MemberCore, senders } from './member-state.ts'

/**
 * `serve`: a member asks for state; the answer is a refusal unless it asks in the promised ballot. `answer`: to a
 * question of ours. `share`: a newcomer asks for a shard of the base. `reduce`: part of the running step. `ignore`:
 * there is no ring, or it was given up. A code: refused and counted.
 */
export type FrameFate =
  | 'serve'
  | 'answer'
  | 'share'
  | 'reduce'
  | 'ignore'
  | Extract<ErrorCode, 'generation-stale' | 'message-unexpected'>

export function fateOf(
  { ring, promised }: MemberCore,
  from: MemberId,
  { type, generation }: Pick<Frame, 'type' | 'generation'>,
): FrameFate {
  switch (type) {
    case 'fetch':
      return 'serve'
    case 'shard':
      return 'share'
    case 'chunk':
    case 'hashes':
    case 'refusal':
      return generation === promised ? 'answer' : 'generation-stale'
    case 'partial':
    case 'reduced':
    case 'manifest':
      if (ring === undefined || ring.stage === 'broken') return 'ignore'
      if (generation !== ring.generation) return 'generation-stale'
      return senders(ring).includes(from) ? 'reduce' : 'message-unexpected'
    case 'heartbeat':
    case 'greeting':
      return 'ignore'
    default:
      return type satisfies never
  }
}
