// A step of a job without async mode that fails again and again for what a member computed of it. Its blocks are tried
// one at a time. Some fail alone, while others go well from the same state: one member after another tries these, until
// they are set aside (quarantine.ts). Each try is a step of its own, so that R8 to R12 hold as ever. A run with async
// mode finds such blocks by its leases.
import type { BlockId, MemberId, MessageFrom } from '@starling-grid/protocol'
import { weightsOf } from '../ring/membership.ts'
import { type Member, own, type RunState } from '../state.ts'
import type { Aspect, Transition } from '../transition.ts'
import { onBlockFailed } from './quarantine.ts'
import { blocksIn, currentEpoch, remaining } from './scheduler.ts'

declare module '../state.ts' {
  interface Slices {
    suspects: Suspects
  }
}

export interface Suspects {
  /** what the steps that failed in a row have in common, and how many they are */
  failing: { readonly blocks: readonly BlockId[]; readonly times: number }
  /** members that gave these steps up */
  readonly by: Set<MemberId>
  /** blocks that are tried one at a time */
  readonly alone: Set<BlockId>
  /** those of them that failed alone: they wait until others went well */
  readonly later: Set<BlockId>
  /** a step was committed since they are tried: neither the state nor all members are at fault */
  isSound: boolean
  /** no other blocks are planned now */
  only: ReadonlySet<BlockId> | undefined
}

/** Part of a step that members get which do not try its block: none of one block. */
const NO_PART = 1e-3

const NOTHING: Suspects['failing'] = { blocks: [], times: 0 }
const none = (): Suspects => ({
  failing: NOTHING,
  by: new Set(),
  alone: new Set(),
  later: new Set(),
  isSound: false,
  only: undefined,
})

export const suspects = {
  initial: () => ({ suspects: none() }),
  hear: { abort: onAbort },
  advance: ({ state }) => refresh(state),
  started: ({ state }) => refresh(state),
  committed: ({ state }) => {
    const slice = own(state, 'suspects')
    slice.failing = NOTHING
    slice.isSound = slice.alone.size > 0
    if (slice.alone.size === 0) slice.by.clear()
    refresh(state)
  },
  rewound: ({ state }) => void Object.assign(own(state, 'suspects'), none()),
  plan: {
    isTaken: ({ suspects: { only, later } }, block) => (only === undefined ? later.has(block) : !only.has(block)),
    batchBlocks: ({ suspects: { only } }) => (only === undefined ? undefined : 1),
  },
} satisfies Aspect

/** Before the row of the ring, which opens the ballot. What a member says of itself alone says something of a block. */
function onAbort(transition: Transition, member: MemberId, { step, blamed, why }: MessageFrom<'abort'>): void {
  const { phase, config } = transition.state
  if (config.mode === 'auto' || config.mode === 'async' || why !== 'own' || blamed !== member) return
  if (phase.type !== 'ring' || !phase.members.includes(member)) return
  const blocks = phase.planned.get(step) ?? []
  const [block] = blocks
  if (block === undefined) return
  own(transition.state, 'suspects').by.add(member)
  if (blocks.length === 1 && transition.state.suspects.alone.has(block)) failedAlone(transition, block, member)
  else suspect(transition, blocks)
  refresh(transition.state)
}

function suspect(transition: Transition, blocks: readonly BlockId[]): void {
  const slice = own(transition.state, 'suspects')
  const common = slice.failing.blocks.filter((block) => blocks.includes(block))
  slice.failing = common.length === 0 ? { blocks, times: 1 } : { blocks: common, times: slice.failing.times + 1 }
  const { times } = slice.failing
  // a member that is alone at fault is left out before (R17)
  if (times <= transition.state.config.timing.abortsBeforeFallback) return
  for (const block of common) slice.alone.add(block)
  slice.failing = NOTHING
  transition.note('run', `a step failed ${times} times: its ${common.length} blocks are tried one at a time`)
}

/** Members that were left out for a block that is set aside may come back at once. */
function failedAlone(transition: Transition, block: BlockId, member: MemberId): void {
  const { state, now } = transition
  const { later, isSound, by } = own(state, 'suspects')
  if (!later.has(block)) return void later.add(block)
  // all fail: no block's fault
  if (!isSound && 2 * state.chain.doneIn(currentEpoch(state)) < blocksIn(state, currentEpoch(state))) return
  onBlockFailed(transition, block, member)
  if (!state.quarantined.has(block)) return
  state.health.aborts = state.health.aborts.filter((abort) => !by.has(abort.by))
  for (const id of by) {
    const accuser = state.members.get(id)
    if (accuser !== undefined) accuser.excludedUntil = Math.min(accuser.excludedUntil, now)
  }
}

/** What is on the chain or set aside is tried no more; which of the others are planned next. */
function refresh(state: RunState): void {
  const slice = own(state, 'suspects')
  const { alone, later } = slice
  for (const block of alone)
    if (state.chain.isDone(block) || state.quarantined.has(block)) for (const set of [alone, later]) set.delete(block)
  if (alone.size === 0) slice.isSound = false
  const fresh = [...alone].filter((block) => !later.has(block))
  const isLast = slice.isSound || remaining(state, currentEpoch(state)) <= alone.size
  if (fresh.length > 0) slice.only = new Set(fresh)
  else slice.only = alone.size > 0 && isLast ? new Set(alone) : undefined
}

/** Parts of the members in the order of their ring: by their speeds; one alone, in turn, while blocks are tried. */
export function partsOf(state: RunState, ring: readonly Member[]): number[] {
  const [block] = state.suspects.only ?? []
  if (block === undefined) return weightsOf(ring)
  const tries = state.aside.failures.get(block)
  const timesOf = ({ id }: Member): number => tries?.get(id)?.times ?? 0
  const fewest = Math.min(...ring.map(timesOf))
  const chosen = ring.findIndex((member) => timesOf(member) === fewest)
  return ring.map((_, rank) => (rank === chosen ? 1 : NO_PART))
}
