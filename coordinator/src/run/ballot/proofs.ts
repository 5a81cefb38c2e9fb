// What a newcomer shows before a ballot stops the ring for it (R2). It proves a version by a digest with a salt that no
// public digest helps to make. It names the neighbours that it could link to. Members that keep a copy digest it with
// the same salt; where they do not settle it, the coordinator digests its newest checkpoint. One voice is not enough.
import {
  digest,
  exchangesWith,
  MAX_DIRECT_MEMBERS,
  type MemberId,
  type MessageFrom,
  type Sha256,
} from '@starling-grid/protocol'
import { newestCheckpoint } from '../journal-replay.ts'
import { noteFailure } from '../links/link-health.ts'
import { known, newcomer, type ProofAsked } from '../ring/newcomer.ts'
import { type Member, own, type RingPhase, type RunState } from '../state.ts'
import type { Aspect, Transition } from '../transition.ts'
import { agreementOf } from './majority.ts'

export const proofs = {
  initial: () => ({ salts: { secret: '', drawn: 0 } }),
  on: {
    'coordinator-started': ({ state }, { secret }) => {
      own(state, 'salts').secret = secret
    },
    'checkpoint-digested': checkpointDigested,
  },
  hear: { proof: proofTold },
} satisfies Aspect

declare module '../state.ts' {
  interface Slices {
    salts: Salts
  }
}

/** They are made of a secret of this process, one after the other. */
export interface Salts {
  secret: string
  drawn: number
}

/** Members whose digests must be equal, the newcomer's among them. */
const SAYING_THE_SAME = 2
/** ms that a newcomer whose proof failed waits for the next; twice as long with each one more */
const AGAIN_MS = 10_000
/** Times AGAIN_MS that it waits at most. */
const LONGEST = 64
/** ms after a newcomer's answer in which members settle it; then the checkpoint does */
const VOICES_MS = 5000

/** Journalled members have worked in a ring. */
export function isProven(state: RunState, { id, stepsHeld }: Pick<Member, 'id' | 'stepsHeld'>): boolean {
  if (known(state, id).proven || stepsHeld > 0) return true
  return [...state.rings.values()].some((members) => members.includes(id))
}

/** 256 bits that a member cannot guess before it is told. */
export function nextSalt(state: RunState): Sha256 {
  const salts = own(state, 'salts')
  return digest(new TextEncoder().encode(`starling salt\n${salts.secret}\n${++salts.drawn}`))
}

/**
 * A member's lot in this ballot: 256 bits that depend on a secret of this process, so that no member can choose them.
 */
export function lot({ salts, generation }: RunState, member: MemberId): Sha256 {
  return digest(new TextEncoder().encode(`starling lot\n${salts.secret}\n${generation}\n${member}`))
}

/** Has it nothing to prove now: an earlier request is open, or its last proof failed a short time ago? */
export function mayProve(state: RunState, member: Member, now: number): boolean {
  const { proveAfter, proof } = known(state, member.id)
  return !isProven(state, member) && proveAfter <= now && proof?.generation !== state.generation
}

/** Members that it would exchange frames with, as the last in the order of the ring. */
export function wouldBeNeighbours({ members }: RunState, phase: RingPhase, newcomer: Member): MemberId[] {
  if (newcomer.relaysOnly === true) return []
  const last = phase.members.length
  return phase.members
    .filter((_, rank) => exchangesWith(phase.exchange.type, rank, last, last + 1))
    .filter((id) => members.has(id) && members.get(id)?.relaysOnly !== true)
    .slice(0, MAX_DIRECT_MEMBERS)
}

export function askProof(
  transition: Transition,
  member: Member,
  { v, salt, peers, checkpoint }: Pick<ProofAsked, 'v' | 'salt' | 'peers' | 'checkpoint'>,
): void {
  const copies = [...transition.state.copying.copies].filter(([, copy]) => copy.salt === salt)
  const voices = new Map(copies.map(([id, copy]) => [id, copy.digest]))
  newcomer(transition.state, member.id).proof = {
    generation: transition.state.generation,
    v,
    salt,
    peers,
    checkpoint,
    voices,
    answer: undefined,
    known: undefined,
  }
  transition.send(member.id, { type: 'prove', ...transition.ballot, v, salt, peers: [...peers] })
}

function proofTold(transition: Transition, id: MemberId, { salt, digest, linked }: MessageFrom<'proof'>): void {
  const member = transition.state.members.get(id)
  if (member === undefined) return
  const { proof } = newcomer(transition.state, id)
  if (proof?.salt !== salt || proof.answer !== undefined) return
  proof.answer = { digest, at: transition.now }
  for (const peer of proof.peers) if (!linked.includes(peer) && digest !== null) noteUnopened(transition, id, peer)
  settle(transition, member)
}

/** Its pair is relayed in the next ring, or kept apart (R18). */
function noteUnopened({ state, now }: Transition, id: MemberId, peer: MemberId): void {
  const failure = {
    pair: [id, peer] as const,
    why: 'unopened' as const,
    relayed: false,
    generation: state.generation,
    at: now,
  }
  const hindsight = { now, halfLifeMs: state.config.timing.linkMemoryMs }
  state.health.linkFailures = noteFailure(state.health.linkFailures, failure, hindsight)
}

/** The coordinator digested its own bytes. */
function checkpointDigested(
  transition: Transition,
  { salt, digest: found }: { readonly salt: Sha256; readonly digest: Sha256 },
): void {
  for (const member of transition.state.members.values()) {
    const { proof } = newcomer(transition.state, member.id)
    if (proof?.salt !== salt || proof.checkpoint === undefined) continue
    proof.known = found
    settle(transition, member)
  }
}

/** Proofs that wait for members, or that members leave open. */
export function proofsTick(transition: Transition): void {
  for (const member of transition.state.members.values())
    if (known(transition.state, member.id).proof?.answer !== undefined) settle(transition, member)
}

function settle(transition: Transition, member: Member): void {
  const one = newcomer(transition.state, member.id)
  const { proof } = one
  if (proof?.answer === undefined || isProven(transition.state, member)) return
  const { answer, checkpoint, known: found } = proof
  if (answer.digest === null) return onProofFailed(transition, member, `does not hold version ${proof.v}`)
  if (checkpoint === undefined) return byMembers(transition, member, proof, answer.digest)
  if (found === undefined) return
  if (found === answer.digest) one.proven = true
  else onProofFailed(transition, member, `holds another version ${proof.v} than the checkpoint`)
}

/** The clear majority decides; a tie is left to the checkpoint. Without a voice it proves the next copy. */
function byMembers(transition: Transition, member: Member, proof: ProofAsked, own: Sha256): void {
  const said = new Map([...proof.voices, [member.id, own]])
  const { digest, most, isClear } = agreementOf(said) ?? { digest: own, most: [], isClear: false }
  const isSettled = isClear && most.length >= SAYING_THE_SAME
  if (isSettled && digest === own) {
    newcomer(transition.state, member.id).proven = true
    return
  }
  if (isSettled)
    return onProofFailed(transition, member, `holds another version ${proof.v} than ${most.length} members`)
  if (transition.now - (proof.answer?.at ?? transition.now) <= VOICES_MS) return
  if (proof.voices.size > 0)
    return onProofFailed(transition, member, `holds another version ${proof.v} than one member`)
  newcomer(transition.state, member.id).proof = undefined
}

/** Its push was taken: it has nothing to prove (R2). */
export function proved(state: RunState, id: MemberId): void {
  if (state.members.has(id)) newcomer(state, id).proven = true
}

/** A member that keeps a copy digested it. */
export function voiceHeard(
  transition: Transition,
  from: MemberId,
  { salt, digest: said }: { readonly salt: Sha256; readonly digest: Sha256 },
): void {
  for (const member of transition.state.members.values()) {
    const { proof } = newcomer(transition.state, member.id)
    if (proof?.salt !== salt) continue
    proof.voices.set(from, said)
    settle(transition, member)
  }
}

/** It alone waits, longer each time; then it fetches the checkpoint and is compared with that. */
export function onProofFailed(transition: Transition, member: Member, why: string): void {
  const one = newcomer(transition.state, member.id)
  const waitMs = AGAIN_MS * Math.min(LONGEST, 2 ** one.failedProofs++)
  one.proof = undefined
  one.proveAfter = transition.now + waitMs
  one.byCheckpoint = true
  if (one.learner !== undefined) Object.assign(one.learner, { held: undefined, ready: false, generation: 0, told: 0 })
  const reason = `${member.name} ${why}: it shows the newest checkpoint in ${Math.round(waitMs / 1000)} s`
  transition.note('member', reason)
  transition.send(member.id, { type: 'wait', reason })
}

/** The coordinator compares this newcomer with itself: the newcomer fetches and digests the newest checkpoint. */
export function proveByCheckpoint(transition: Transition, member: Member, peers: readonly MemberId[]): void {
  const { version } = newestCheckpoint(transition.state)
  const salt = nextSalt(transition.state)
  transition.effect({ type: 'digest-checkpoint', version, salt })
  transition.send(member.id, {
    type: 'prefetch',
    ...transition.ballot,
    version,
    sources: [],
    coordinatorHolds: true,
    ...(known(transition.state, member.id).byCheckpoint ? { anew: true as const } : {}),
  })
  askProof(transition, member, { v: version.v, salt, peers, checkpoint: version })
}
