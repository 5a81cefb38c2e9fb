// What a volunteer is just doing, for tests that strike then.
import type { FrameType, ToCoordinator } from '@starling-grid/protocol'

export type Moment =
  /** it computed its part of a step; it applied a step; it took over a whole version */
  | { readonly at: 'computed' | 'applied' | 'adopted' }
  /** it is about to send this to the coordinator; it has */
  | { readonly at: 'says' | 'said'; readonly what: ToCoordinator['type'] }
  /** a frame of this type, which went so many hops, leaves it or reaches it */
  | { readonly at: 'sends' | 'gets'; readonly type: FrameType; readonly hop: number }

export function isSameMoment(a: Moment, b: Moment): boolean {
  if ('what' in a && 'what' in b) return a.at === b.at && a.what === b.what
  if ('type' in a && 'type' in b) return a.at === b.at && a.type === b.type && a.hop === b.hop
  return a.at === b.at && !('what' in a) && !('type' in a)
}
