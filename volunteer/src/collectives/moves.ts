// Which rank sends which part of a vector to which rank in which round, for every collective and algorithm. Pure: the
// lists hold the moves of all ranks, so that they can be checked without links; a rank takes its own from them
// (steps.ts).
//
// A vector is cut into segments. In one round a rank sends what it held when the round began. What it receives is added
// to its own or stored in its place. Rounds order the moves of one segment, they are no barrier: other segments do not
// wait.
//
// Source of the ring: Patarasuk and Yuan, JPDC 69 (2009). Of recursive halving and doubling ("butterfly"), binomial
// trees and ranks beyond a power of two: Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005).
import { GridError } from '@starling-grid/protocol'

export type Collective =
  | 'allReduce'
  | 'reduceScatter'
  | 'allGather'
  | 'broadcast'
  | 'reduce'
  | 'gather'
  | 'scatter'
  | 'allToAll'

/**
 * ring: neighbours only. direct: every rank with every rank, two hops. butterfly: recursive halving, then doubling.
 * recursive-doubling: whole vectors between partners. tree: binomial. star: everything through the root.
 */
export type Algorithm = 'ring' | 'direct' | 'butterfly' | 'recursive-doubling' | 'tree' | 'star'

export interface Move {
  readonly round: number
  readonly from: number
  readonly to: number
  /** segments `first` to `end − 1` */
  readonly first: number
  readonly end: number
  /** what the receiver does with it */
  readonly effect: 'add' | 'store'
}

export interface Schedule {
  /** how many segments the vector has: after a reduce-scatter, and before an all-gather, segment r is with rank r */
  readonly segments: number
  readonly moves: readonly Move[]
}

type Maker = (size: number, root: number) => Schedule

const SCHEDULES: Readonly<Record<Collective, Partial<Record<Algorithm, Maker>>>> = {
  allReduce: {
    ring: (size) => schedule(size, inTurn(ringReduceScatter(size), ringAllGather(size))),
    direct: (size) => schedule(size, inTurn(directReduceScatter(size), directAllGather(size))),
    butterfly: (size) =>
      schedule(largestPower(size), folded(size, largestPower(size), halvingAndDoubling(largestPower(size)))),
    'recursive-doubling': (size) => schedule(1, folded(size, 1, doubling(largestPower(size)))),
    tree: (size) => schedule(1, inTurn(treeReduce(size, 0), treeBroadcast(size, 0))),
    star: (size) => schedule(1, inTurn(starReduce(size, 0), starBroadcast(size, 0))),
  },
  reduceScatter: {
    ring: (size) => schedule(size, ringReduceScatter(size)),
    direct: (size) => schedule(size, directReduceScatter(size)),
  },
  allGather: {
    ring: (size) => schedule(size, ringAllGather(size)),
    direct: (size) => schedule(size, directAllGather(size)),
  },
  broadcast: {
    ring: (size, root) => schedule(1, chainBroadcast(size, root)),
    tree: (size, root) => schedule(1, treeBroadcast(size, root)),
    star: (size, root) => schedule(1, starBroadcast(size, root)),
  },
  reduce: {
    ring: (size, root) => schedule(1, chainReduce(size, root)),
    tree: (size, root) => schedule(1, treeReduce(size, root)),
    star: (size, root) => schedule(1, starReduce(size, root)),
  },
  gather: {
    star: (size, root) =>
      schedule(
        size,
        others(size, root).map((rank) => store(0, rank, root, rank)),
      ),
  },
  scatter: {
    star: (size, root) =>
      schedule(
        size,
        others(size, root).map((rank) => store(0, root, rank, rank)),
      ),
  },
  // Segment a·N + b is what rank a has for rank b.
  allToAll: {
    direct: (size) =>
      schedule(
        size * size,
        pairs(size).map(([from, to]) => store(0, from, to, from * size + to)),
      ),
  },
}

/** The algorithms that a collective has. */
export function algorithmsOf(collective: Collective): readonly Algorithm[] {
  return Object.keys(SCHEDULES[collective]) as Algorithm[]
}

/**
 * @throws GridError 'unsupported' when the collective has no such algorithm
 * @example const { segments, moves } = scheduleOf({ collective: 'allReduce', algorithm: 'ring', size: 4, root: 0 })
 */
export function scheduleOf({
  collective,
  algorithm,
  size,
  root,
}: {
  readonly collective: Collective
  readonly algorithm: Algorithm
  readonly size: number
  readonly root: number
}): Schedule {
  const make = SCHEDULES[collective][algorithm]
  if (make === undefined)
    throw new GridError(
      'unsupported',
      `expected ${algorithmsOf(collective).join(', ')} for ${collective}, got ${algorithm}`,
    )
  return make(size, root)
}

/** The largest power of two that is not above `size`. */
export function largestPower(size: number): number {
  return 1 << (31 - Math.clz32(size))
}

/** ⌈log₂ size⌉. Not with Math.log2: it may differ between machines, and all ranks must count the same. */
export function treeRounds(size: number): number {
  return 32 - Math.clz32(size - 1)
}

function schedule(segments: number, moves: readonly Move[]): Schedule {
  return { segments, moves }
}

function upTo(count: number): number[] {
  return Array.from({ length: count }, (_, i) => i)
}

function others(size: number, root: number): number[] {
  return upTo(size).filter((rank) => rank !== root)
}

function pairs(size: number): [from: number, to: number][] {
  return upTo(size).flatMap((from) => others(size, from).map((to): [number, number] => [from, to]))
}

function store(round: number, from: number, to: number, segment: number): Move {
  return { round, from, to, first: segment, end: segment + 1, effect: 'store' }
}

function add(round: number, from: number, to: number, segment: number): Move {
  return { round, from, to, first: segment, end: segment + 1, effect: 'add' }
}

function roundsOf(moves: readonly Move[]): number {
  return moves.reduce((most, { round }) => Math.max(most, round + 1), 0)
}

/** One list after the other. */
function inTurn(...lists: readonly (readonly Move[])[]): Move[] {
  const all: Move[] = []
  for (const list of lists) {
    const before = roundsOf(all)
    all.push(...list.map((move) => ({ ...move, round: before + move.round })))
  }
  return all
}

/** Round h: rank r sends segment r−1−h, so that rank r ends with the whole sum of segment r. */
function ringReduceScatter(size: number): Move[] {
  return upTo(size - 1).flatMap((round) =>
    upTo(size).map((rank) => add(round, rank, (rank + 1) % size, (rank - 1 - round + size) % size)),
  )
}

/** Round h: rank r sends segment r−h. */
function ringAllGather(size: number): Move[] {
  return upTo(size - 1).flatMap((round) =>
    upTo(size).map((rank) => store(round, rank, (rank + 1) % size, (rank - round + size) % size)),
  )
}

function directReduceScatter(size: number): Move[] {
  return pairs(size).map(([from, to]) => add(0, from, to, to))
}

function directAllGather(size: number): Move[] {
  return pairs(size).map(([from, to]) => store(0, from, to, from))
}

function starReduce(size: number, root: number): Move[] {
  return others(size, root).map((rank) => add(0, rank, root, 0))
}

function starBroadcast(size: number, root: number): Move[] {
  return others(size, root).map((rank) => store(0, root, rank, 0))
}

/** From the far end of the chain to the root; chunks follow each other, so that long vectors keep every link busy. */
function chainReduce(size: number, root: number): Move[] {
  return upTo(size - 1).map((round) =>
    add(round, (root + size - 1 - round) % size, (root + size - 2 - round) % size, 0),
  )
}

function chainBroadcast(size: number, root: number): Move[] {
  return upTo(size - 1).map((round) => store(round, (root + round) % size, (root + round + 1) % size, 0))
}

/** Counted from the root, ranks at odd multiples of 1, 2, 4 … pass their sum down and are done. */
function treeReduce(size: number, root: number): Move[] {
  const rounds = treeRounds(size)
  return upTo(rounds).flatMap((round) =>
    leavers(size, round).map((place) => add(round, (root + place) % size, (root + place - 2 ** round) % size, 0)),
  )
}

function treeBroadcast(size: number, root: number): Move[] {
  const rounds = treeRounds(size)
  return upTo(rounds).flatMap((round) => {
    const level = rounds - 1 - round
    return leavers(size, level).map((place) =>
      store(round, (root + place - 2 ** level) % size, (root + place) % size, 0),
    )
  })
}

function leavers(size: number, level: number): number[] {
  return upTo(size).filter((place) => place % (2 * 2 ** level) === 2 ** level)
}

/** Partners at distance 1, 2, 4 … exchange whole vectors. a + b = b + a, so both hold the same bytes. */
function doubling(power: number): Move[] {
  return upTo(treeRounds(power)).flatMap((round) => upTo(power).map((rank) => add(round, rank, rank ^ (2 ** round), 0)))
}

/**
 * Partners at distance P/2 … 1 give each other one half of what they hold; then they collect the sums the same way
 * back.
 */
function halvingAndDoubling(power: number): Move[] {
  const levels = treeRounds(power)
  const halving = upTo(levels).flatMap((round) => {
    const distance = power / 2 ** (round + 1)
    return upTo(power).map((rank): Move => ({
      ...block(rank ^ distance, distance),
      round,
      from: rank,
      to: rank ^ distance,
      effect: 'add',
    }))
  })
  const collecting = upTo(levels).flatMap((round) => {
    const distance = 2 ** round
    return upTo(power).map((rank): Move => ({
      ...block(rank, distance),
      round,
      from: rank,
      to: rank ^ distance,
      effect: 'store',
    }))
  })
  return inTurn(halving, collecting)
}

/** The aligned run of `width` segments that `rank` is in. */
function block(rank: number, width: number): Pick<Move, 'first' | 'end'> {
  const first = rank - (rank % width)
  return { first, end: first + width }
}

/**
 * Moves among a power of two, for any size. Of the first ranks every even one gives its vector to the next, and gets
 * the sum back.
 */
function folded(size: number, segments: number, moves: readonly Move[]): Move[] {
  const extra = size - largestPower(size)
  const active = (rank: number): number => (rank < extra ? 2 * rank + 1 : rank + extra)
  const whole = { round: 0, first: 0, end: segments }
  const giving = upTo(extra).map((i): Move => ({ ...whole, from: 2 * i, to: 2 * i + 1, effect: 'add' }))
  const returning = upTo(extra).map((i): Move => ({ ...whole, from: 2 * i + 1, to: 2 * i, effect: 'store' }))
  const among = moves.map((move) => ({ ...move, from: active(move.from), to: active(move.to) }))
  return inTurn(giving, among, returning)
}
