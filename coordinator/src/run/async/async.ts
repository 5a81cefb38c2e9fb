// Async mode as a phase: entering it (A5), leaving it (A6), its checkpoints (A4).
import type { Sha256, VersionRef } from '@starling-grid/protocol'
import { isDerived } from '../ballot/derived-state.ts'
import { askServer, checkpointDue } from '../history/checkpoints.ts'
import { beginAnew } from '../history/validation.ts'
import { newestCheckpoint } from '../journal-replay.ts'
import { countFallback, nextMode } from '../policy/mode-policy.ts'
import type { RunInput, RunState } from '../state.ts'
import type { Aspect, Handed, Transition } from '../transition.ts'
import { closeSum, emptySum } from './accumulator.ts'
import { expireLeases, forgetAsked } from './leases.ts'

export const asyncMode = {
  on: { 'server-checkpoint': onServerCheckpoint, 'server-lost': onServerLost },
  tick: asyncTick,
  memberLost: (transition) => {
    if (transition.state.phase.type === 'async') transition.enqueue({ type: 'advance' })
  },
} satisfies Aspect

/** A5: one append takes over the ring's version and opens the mode epoch; leases are granted only after it. */
export function enterAsync(transition: Transition, handed: Handed | undefined): void {
  const { state, now } = transition
  const { phase } = state
  const handover = phase.type === 'handover' && handed !== undefined
  if (handover)
    transition.journal(
      { type: 'commit', records: phase.records },
      {
        type: 'checkpoint',
        ...handed,
        witnessed: handed.agreeing > 1 || isDerived(state, handed.version, handed.blob),
      },
    )
  const { reason } = nextMode(now, state.health, state.mode, state.config)
  if (state.mode !== 'async') countFallback(now, state.health, state.config.timing)
  transition.journal({ type: 'mode', mode: 'async', modeEpoch: state.modeEpoch + 1, reason })
  transition.tell(({ rewound }) => rewound?.(transition, 'async'))
  forgetPushes(state)
  state.health.disturbedAt = now
  state.phase = { type: 'async', since: now, checkpointAskedAt: undefined }
  transition.effect({ type: 'server-load', checkpoint: newestCheckpoint(state) })
  transition.note('mode', `asynchronous parameter server from version ${state.chain.head.v}: ${reason}`)
  transition.reason(`parameter server: ${reason}`)
  transition.broadcast(state.members.keys(), { type: 'async', ...transition.ballot, modeEpoch: state.modeEpoch })
}

function asyncTick(transition: Transition): void {
  const { state, now } = transition
  const { phase } = state
  if (phase.type === 'settle') return settleTick(transition, phase.since)
  if (phase.type !== 'async') return
  expireLeases(transition)
  if (checkpointDue(state, now)) askServer(transition, phase)
  const next = nextMode(now, state.health, 'async', state.config)
  if (next.mode === 'ring' && state.members.size >= 1) return leaveAsync(transition, next.reason)
  transition.enqueue({ type: 'advance' })
}

function settleTick(transition: Transition, since: number): void {
  if (transition.now - since < transition.state.config.timing.formMs) return
  transition.enqueue({ type: 'ballot', reason: 'the change of mode took too long', trouble: true })
}

/** What a mode epoch leaves behind that no record holds. */
function forgetPushes(state: RunState): void {
  state.leases.clear()
  emptySum(state)
  state.workers.clear()
  beginAnew(state)
  forgetAsked(state)
}

/**
 * A6: the open sum is closed, then the next mode epoch begins (late pushes are stale from here). The server's newest
 * version follows, then a ballot.
 */
function leaveAsync(transition: Transition, reason: string): void {
  const { state, now } = transition
  closeSum(transition)
  transition.journal({ type: 'mode', mode: 'ring', modeEpoch: state.modeEpoch + 1, reason })
  transition.note('mode', `back to the ring: ${reason}`)
  forgetPushes(state)
  state.health.consecutiveAborts = 0
  state.health.leftAsyncAt = now
  state.health.ballots = []
  const settled = newestCheckpoint(state).version.id === state.chain.head.id
  state.phase = { type: 'settle', since: now, target: state.chain.head }
  if (settled) return settle(transition)
  transition.reason("writing the parameter server's newest version")
  transition.effect({ type: 'server-checkpoint', version: state.chain.head })
}

function onServerCheckpoint(
  transition: Transition,
  written: {
    readonly version: VersionRef
    readonly blob: Sha256
    readonly bytes: number
    readonly remembered?: Sha256
  },
): void {
  const { state } = transition
  const { remembered } = written
  if (state.chain.has(written.version) && written.version.v > newestCheckpoint(state).version.v) {
    transition.journal({
      type: 'checkpoint',
      version: written.version,
      blob: written.blob,
      bytes: written.bytes,
      witnessed: true,
      agreeing: 1,
      members: 1,
      ...(remembered ? { remembered } : {}),
    })
    transition.note('checkpoint', `checkpoint of version ${written.version.v}`)
  }
  if (state.phase.type === 'async') {
    state.phase.checkpointAskedAt = undefined
    return transition.enqueue({ type: 'advance' })
  }
  if (state.phase.type === 'settle' && written.version.id === state.phase.target.id) settle(transition)
}

function settle(transition: Transition): void {
  transition.effect({ type: 'server-unload' })
  transition.enqueue({ type: 'ballot', reason: 'the ring takes over from the parameter server', trouble: false })
}

/**
 * A4: its threads died, or a defect stopped it. What it had since its last checkpoint is repeated: the ballot goes back
 * to it.
 */
function onServerLost(transition: Transition, { reason: why }: Extract<RunInput, { type: 'server-lost' }>): void {
  const { phase } = transition.state
  if (phase.type !== 'async' && phase.type !== 'settle') return
  transition.note('run', `the parameter server stopped: ${why}`)
  transition.effect({ type: 'server-unload' })
  transition.enqueue({ type: 'ballot', reason: 'the parameter server stopped', trouble: true })
}
