// Where members sit in the picture. Pure; units are those of the picture: centre (0, 0), y downwards.
import type { MemberId, MemberView, RunView } from '@starling-grid/protocol'

/** The picture reaches this far from its centre. Wider than high: names stand beside the ring. */
export const HALF_WIDTH = 124
export const HALF_HEIGHT = 98
/** of the circle on which members sit */
export const RING_RADIUS = 66

export interface RingNode {
  readonly id: MemberId
  readonly member: MemberView
  /** radians, 0 is right, −π/2 is up */
  readonly angle: number
  readonly x: number
  readonly y: number
  /** takes part in the running ring */
  readonly inRing: boolean
}

/** ring: gradients travel from node to node; star: between node and coordinator; still: nothing travels. */
export type FlightPattern = 'ring' | 'star' | 'still'

/**
 * Members of the ring first, in its order, then the others by the time they came: no member moves when another joins.
 */
export function ringNodes(members: readonly MemberView[]): readonly RingNode[] {
  const ordered = [...members].sort((a, b) => rank(a) - rank(b) || a.joinedAt - b.joinedAt || (a.id < b.id ? -1 : 1))
  return ordered.map((member, index) => {
    const angle = -Math.PI / 2 + (2 * Math.PI * index) / ordered.length
    return {
      id: member.id,
      member,
      angle,
      x: RING_RADIUS * Math.cos(angle),
      y: RING_RADIUS * Math.sin(angle),
      inRing: member.rank !== null,
    }
  })
}

export interface RingLink {
  readonly from: RingNode
  readonly to: RingNode
}

/** Links of the running ring whose frames go through the coordinator; a ring of two has one link. */
export function relayedLinks(nodes: readonly RingNode[]): readonly RingLink[] {
  const ring = nodes.filter((node) => node.inRing)
  const links = ring.flatMap((from, i): RingLink[] => {
    const to = ring[(i + 1) % ring.length]
    return to === undefined || !from.member.relayed ? [] : [{ from, to }]
  })
  return ring.length === 2 ? links.slice(0, 1) : links
}

function rank(member: MemberView): number {
  return member.rank ?? Number.MAX_SAFE_INTEGER
}

export function flightPattern(run: Pick<RunView, 'phase' | 'mode'> | null): FlightPattern {
  switch (run?.phase) {
    case 'async':
      return 'star'
    case 'ring':
      return 'ring'
    case 'validating':
      return run.mode === 'async' ? 'star' : 'ring'
    default:
      return 'still'
  }
}
