// Async mode as a phase: entering it (A5), leaving it (A6), its checkpoints (A4).
import type { Sha256, VersionRef } from '@starling-grid/protocol'
import { closeSum, emptySum } from './accumulator.ts'
import { checkpointDue } from './checkpoints.ts'
import { forgetGuests } from './guests.ts'
import { newestCheckpoint } from './journal-replay.ts'
import { expireLeases } from './leases.ts'
import { countFallback, nextMode } from './mode-policy.ts'
import type { RunPhase, RunState } from './state.ts'
import type { Handed, Turn } from './turn.ts'

/** ms for the server to write its state before it is asked again */
const WRITE_MS = 20_000

/** A5: one append takes over the ring's version and opens the mode epoch; leases are granted only after it. */
export function enterAsync(turn: Turn, handed: Handed | undefined): void {
  const { state, now } = turn
  const { phase } = state
  const handover = phase.type === 'handover' && handed !== undefined
  if (handover)
    turn.journal(
      { type: 'commit', records: phase.records },
      { type: 'checkpoint', ...handed, witnessed: handed.agreeing > 1 },
    )
  const { reason } = nextMode(now, state.health, state.mode, state.config)
  if (state.mode !== 'async') countFallback(now, state.health, state.config.timing)
  turn.journal({ type: 'mode', mode: 'async', modeEpoch: state.modeEpoch + 1, reason })
  if (state.open.pushes.length > 0 || state.given !== undefined) forgetGuests(turn)
  forgetPushes(state)
  state.checkpointAsked = undefined
  state.health.disturbedAt = now
  state.phase = { type: 'async', since: now, checkpointAskedAt: undefined }
  turn.effect({ type: 'server-load', checkpoint: newestCheckpoint(state) })
  turn.note('mode', `asynchronous parameter server from version ${state.chain.head.v}: ${reason}`)
  turn.reason(`parameter server: ${reason}`)
  turn.broadcast(state.members.keys(), { type: 'async', ...turn.ballot, modeEpoch: state.modeEpoch })
}

export function asyncTick(turn: Turn, phase: Extract<RunPhase, { type: 'async' }>): void {
  const { state, now } = turn
  expireLeases(turn)
  if (checkpointDue(state, now)) askServer(turn, phase)
  const next = nextMode(now, state.health, 'async', state.config)
  if (next.mode === 'ring' && state.members.size >= 1) return leaveAsync(turn, next.reason)
  turn.then({ type: 'advance' })
}

export function askServer(turn: Turn, phase: Extract<RunPhase, { type: 'async' }>): void {
  if (phase.checkpointAskedAt !== undefined && turn.now - phase.checkpointAskedAt < WRITE_MS) return
  phase.checkpointAskedAt = turn.now
  turn.effect({ type: 'server-checkpoint', version: turn.state.chain.head })
}

/** What a mode epoch leaves behind that no record holds. */
function forgetPushes(state: RunState): void {
  state.leases.clear()
  state.open = emptySum()
  state.workers.clear()
  state.validation = undefined
  for (const member of state.members.values()) member.hungry = false // who wants work asks again
}

/**
 * A6: the open sum is closed, then the next mode epoch begins (late pushes are stale from here), then the server's
 * newest version, then a ballot.
 */
function leaveAsync(turn: Turn, reason: string): void {
  const { state, now } = turn
  closeSum(turn)
  turn.journal({ type: 'mode', mode: 'ring', modeEpoch: state.modeEpoch + 1, reason })
  turn.note('mode', `back to the ring: ${reason}`)
  forgetPushes(state)
  state.health.consecutiveAborts = 0
  state.health.leftAsyncAt = now
  state.health.ballots = []
  const settled = newestCheckpoint(state).version.id === state.chain.head.id
  state.phase = { type: 'settle', since: now, target: state.chain.head }
  if (settled || state.config.off.has('A6')) return settle(turn)
  turn.reason("writing the parameter server's newest version")
  turn.effect({ type: 'server-checkpoint', version: state.chain.head })
}

export function serverCheckpointed(
  turn: Turn,
  written: {
    readonly version: VersionRef
    readonly blob: Sha256
    readonly bytes: number
    readonly remembered?: Sha256
  },
): void {
  const { state } = turn
  const { remembered } = written
  if (state.chain.has(written.version) && written.version.v > newestCheckpoint(state).version.v) {
    turn.journal({
      type: 'checkpoint',
      version: written.version,
      blob: written.blob,
      bytes: written.bytes,
      witnessed: true,
      agreeing: 1,
      members: 1,
      ...(remembered ? { remembered } : {}),
    })
    turn.note('checkpoint', `checkpoint of version ${written.version.v}`)
  }
  if (state.phase.type === 'async') {
    state.phase.checkpointAskedAt = undefined
    return turn.then({ type: 'advance' })
  }
  if (state.phase.type === 'settle' && written.version.id === state.phase.target.id) settle(turn)
}

function settle(turn: Turn): void {
  turn.effect({ type: 'server-unload' })
  turn.then({ type: 'ballot', reason: 'the ring takes over from the parameter server', trouble: false })
}

/**
 * A4: its threads died, or a defect stopped it. What it had since its last checkpoint is repeated: the ballot goes back
 * to it.
 */
export function serverLost(turn: Turn, why: string): void {
  const { phase } = turn.state
  if (phase.type !== 'async' && phase.type !== 'settle') return
  turn.note('run', `the parameter server stopped: ${why}`)
  turn.effect({ type: 'server-unload' })
  turn.then({ type: 'ballot', reason: 'the parameter server stopped', trouble: true })
}
