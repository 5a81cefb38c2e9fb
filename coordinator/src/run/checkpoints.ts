// When a version becomes durable: asked of one member in turn, believed when another member's digest agrees (R15).
import type { MemberId, MessageFrom, Sha256, VersionRef } from '@starling-grid/protocol'
import { newestCheckpoint } from './journal-replay.ts'
import { trainingIsOver } from './scheduler.ts'
import type { RunPhase, RunState } from './state.ts'
import type { Turn } from './turn.ts'

type Ring = Extract<RunPhase, { type: 'ring' }>

/** steps ahead of C that a checkpoint is asked for, so that nobody has passed it when the message arrives */
const AHEAD = 8

/** Enough steps or enough time since the newest checkpoint. */
export function checkpointDue(state: RunState, now: number): boolean {
  const newest = newestCheckpoint(state)
  const steps = state.chain.head.v - newest.version.v
  return steps > 0 && (steps >= state.config.timing.checkpointSteps || now - newest.at >= state.config.timing.checkpointMs)
}

/** Asks for a checkpoint at version v, unless one is under way. */
export function askCheckpoint(turn: Turn, phase: Ring, v: number): void {
  const { state, now } = turn
  const asked = phase.checkpointAsked
  if (asked !== undefined && asked.v >= newestCheckpoint(state).version.v + 1 && asked.v >= Math.min(v, state.chain.head.v) && now - asked.at < state.config.timing.uploadMs) return
  const place = asked === undefined ? v : phase.members.indexOf(asked.uploader) + 1
  const uploader = phase.members[place % phase.members.length]
  if (uploader === undefined) return
  phase.checkpointAsked = { v, uploader, at: now }
  turn.broadcast(phase.members, { type: 'checkpoint-at', ...turn.ballot, v, uploader })
}

/** A version within the plan that no member can have passed yet. */
export function nextCheckpointVersion(state: RunState, phase: Ring): number {
  return Math.min(phase.plannedTo, state.chain.head.v + AHEAD)
}

export function uploaded(turn: Turn, member: MemberId, upload: { readonly version: VersionRef; readonly blob: Sha256; readonly bytes: number }): void {
  const { state } = turn
  const { phase } = state
  if (phase.type === 'handover' && phase.source === member && upload.version.id === phase.target.id) return turn.then({ type: 'enter-async' })
  if (phase.type !== 'ring' || !phase.members.includes(member)) return turn.note('refusal', `an upload of version ${upload.version.v} came too late`)
  state.provisional = { ...upload, from: member }
  if (state.config.off.has('R15')) return accept(turn, { agreeing: 1, members: phase.members.length })
  considerUpload(turn)
}

export function digestReported(turn: Turn, member: MemberId, { version, digest }: MessageFrom<'version-digest'>): void {
  turn.state.digests.set(member, { version, digest })
  considerUpload(turn)
}

/**
 * R15: on the chain at v ≤ C, and another member's digest for that id agrees (a ring of one has no other: decision
 * 0003). The last version of a run wants the digests of all. */
export function considerUpload(turn: Turn): void {
  const { state } = turn
  const upload = state.provisional
  if (upload === undefined || state.phase.type !== 'ring') return
  if (upload.version.v <= newestCheckpoint(state).version.v) return forget(state)
  const onChain = state.chain.at(upload.version.v)
  if (onChain === undefined) return
  if (onChain.id !== upload.version.id) return forget(state)
  const others = state.phase.members.filter((id) => id !== upload.from)
  const reports = others.map((id) => ({ id, seen: state.digests.get(id) })).filter(({ seen }) => seen?.version.id === upload.version.id)
  const liar = reports.find(({ seen }) => seen?.digest !== upload.blob)
  if (liar !== undefined) return refuseUpload(turn, upload.from, liar.id)
  const needed = trainingIsOver(state) ? others.length : Math.min(1, others.length)
  if (reports.length >= needed) accept(turn, { agreeing: 1 + reports.length, members: 1 + others.length })
}

function forget(state: RunState): void {
  state.provisional = undefined
}

function refuseUpload(turn: Turn, uploader: MemberId, witness: MemberId): void {
  turn.refuse(uploader, 'digest-mismatch', 'the state you uploaded is not the one that another member holds')
  turn.note('refusal', `${name(turn, uploader)} and ${name(turn, witness)} hold different parameters`)
  forget(turn.state)
  turn.then({ type: 'ballot', reason: 'two members hold different parameters', trouble: true })
}

function name(turn: Turn, id: MemberId): string {
  return turn.state.members.get(id)?.name ?? id.slice(0, 8)
}

function accept(turn: Turn, support: { readonly agreeing: number; readonly members: number }): void {
  const { provisional } = turn.state
  if (provisional === undefined) return
  const { version, blob, bytes } = provisional
  const witnessed = support.agreeing > 1
  turn.journal({ type: 'checkpoint', version, blob, bytes, witnessed, ...support })
  turn.note('checkpoint', `checkpoint of version ${version.v}${witnessed ? ', confirmed by a second member' : ''}`)
  forget(turn.state)
  turn.then({ type: 'advance' })
}
