// How the birds fly: a pure function of time. Each bird belongs to a member, as many as its share of the speed, so the
// flock is as dense as the work. In a ring they travel from node to node; in async mode to the coordinator and back.
import { RING_RADIUS, type FlightPattern, type RingNode } from './ring-layout.ts'

export interface Bird {
  /** index of the member's node */
  readonly node: number
  /** three numbers in [0, 1) that make this bird itself */
  readonly a: number
  readonly b: number
  readonly c: number
}
export interface CanvasPoint {
  readonly x: number
  readonly y: number
}

/** Enough for a flock, few enough for a phone: about 0.5 ms a frame. */
const BIRDS_OF_ALL = 340
const FEWEST_BIRDS_EACH = 5
/** radians per second along the ring */
const RING_SPEED = 0.3
/** trips to the coordinator and back per second */
const STAR_SPEED = 0.16
/** radians of the ring that a member's birds take up, to both sides */
const SPREAD = 1.1
const ALONE_SPREAD = 2.2
const GOLDEN = 0.618033988749895
const TURN = 2 * Math.PI

export function flockOf(nodes: readonly RingNode[]): readonly Bird[] {
  if (nodes.length === 0) return Array.from({ length: BIRDS_OF_ALL / 2 }, (_, k) => birdOf(0, k))
  const total = nodes.reduce((sum, node) => sum + node.member.samplesPerSecond, 0)
  return nodes.flatMap((node, index) => {
    const fraction = total > 0 ? node.member.samplesPerSecond / total : 1 / nodes.length
    const birds = Math.max(FEWEST_BIRDS_EACH, Math.round(BIRDS_OF_ALL * fraction))
    return Array.from({ length: birds }, (_, k) => birdOf(index, k))
  })
}

function birdOf(node: number, k: number): Bird {
  const seed = node * 7.31 + k
  return { node, a: (seed * GOLDEN) % 1, b: (seed * GOLDEN * GOLDEN * 3.7) % 1, c: (seed * 0.7548776662) % 1 }
}

/** Where `bird` is at `time` (seconds). */
export function rankOf(bird: Bird, nodes: readonly RingNode[], pattern: FlightPattern, time: number): CanvasPoint {
  const node = nodes[bird.node]
  if (node === undefined) return wandering(bird, time)
  if (pattern === 'star') return alongSpoke(bird, node, time)
  if (pattern === 'ring' && node.inRing) return alongRing(bird, node, nodes.length, time)
  return circling(bird, node, pattern === 'ring' ? 1 : 0.45, time)
}

/** A ribbon that twists around the circle, as a flock folds over itself. */
function alongRing(bird: Bird, node: RingNode, members: number, time: number): CanvasPoint {
  // Denser in the middle of its member's part of the flock than at its ends.
  const inPart = (members === 1 ? ALONE_SPREAD : SPREAD) * (bird.a + bird.b + bird.c - 1.5)
  const along = node.angle + inPart + RING_SPEED * time
  const fold = 5 * Math.sin(2 * along - 0.9 * time + 4 * inPart)
  const width = 9 + 7 * Math.sin(3 * along + 0.5 * time)
  const across = fold + width * (bird.b - 0.5) + 3 * (bird.c - 0.5)
  return at(RING_RADIUS + across, along + 0.06 * Math.sin(TURN * bird.c + 1.1 * time))
}

function alongSpoke(bird: Bird, node: RingNode, time: number): CanvasPoint {
  const trip = (bird.a + STAR_SPEED * time * (0.85 + 0.3 * bird.c)) % 1
  const outward = 0.5 + 0.5 * Math.cos(TURN * trip)
  // Out on one side of the spoke, back on the other.
  const aside =
    (trip < 0.5 ? 1 : -1) * Math.sin(Math.PI * outward) * (2 + 7 * bird.b) + 1.5 * Math.sin(time + TURN * bird.c)
  const reach = 10 + (RING_RADIUS - 14) * outward
  return {
    x: reach * Math.cos(node.angle) - aside * Math.sin(node.angle),
    y: reach * Math.sin(node.angle) + aside * Math.cos(node.angle),
  }
}

/** Around its own node, waiting. */
function circling(bird: Bird, node: RingNode, speed: number, time: number): CanvasPoint {
  const angle = TURN * bird.a + speed * time * (0.5 + bird.c)
  const reach = 8 + 15 * bird.b * bird.b + 1.5 * Math.sin(time + TURN * bird.c)
  return { x: node.x + reach * Math.cos(angle), y: node.y + 0.8 * reach * Math.sin(angle) }
}

/** Without members: a small flock that drifts over the empty ring. */
function wandering(bird: Bird, time: number): CanvasPoint {
  const slow = 0.22 * time
  const angle = TURN * bird.a + slow + 0.6 * Math.sin(slow + 3 * bird.b)
  const reach = 40 * Math.sqrt(bird.b) * (0.75 + 0.25 * Math.sin(2 * angle + 1.7 * slow))
  return {
    x: 18 * Math.sin(0.7 * slow) + 1.35 * reach * Math.cos(angle),
    y: 10 * Math.sin(1.1 * slow) + 0.7 * reach * Math.sin(angle + 0.5 * bird.c),
  }
}

function at(radius: number, angle: number): CanvasPoint {
  return { x: radius * Math.cos(angle), y: radius * Math.sin(angle) }
}
