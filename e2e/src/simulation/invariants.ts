// The invariants of docs/RULES.md, checked after every event, of members and of the coordinator that owns the journal.
import type { JournalEntry, RunState } from '@starling-grid/coordinator/run'
import {
  type Claim,
  extend,
  fold,
  type MemberId,
  sameVersion,
  trainingBlock,
  type VersionRef,
} from '@starling-grid/protocol'
import type { MemberCore } from '@starling-grid/volunteer/member'
import { LATENCY_MS } from './agenda.ts'
import type { Context } from './context.ts'
import type { CoordinatorProcess } from './coordinator-process.ts'
import type { VolunteerProcess } from './volunteer-process.ts'

/** A member that is connected this long without a break has heard the ballot and was heard. */
const IN_REACH_MS = 4 * LATENCY_MS

export function checkInvariants(
  context: Context,
  volunteers: readonly VolunteerProcess[],
  coordinator: CoordinatorProcess | undefined,
): void {
  const alive = volunteers.filter((volunteer) => volunteer.alive)
  for (const volunteer of alive) checkReplica(context, volunteer)
  checkGenerations(context, alive)
  if (coordinator !== undefined) checkOneVoice(context, coordinator)
  if (coordinator?.disk.idle !== true) return // it knows more than the disk, and than has left it
  checkDone(context, coordinator)
  checkPrefix(context, alive, coordinator)
}

/** I1, I6 */
function checkReplica(context: Context, { id, core, replica }: VolunteerProcess): void {
  if (core.version === undefined) return
  if (replica === undefined || !sameVersion(replica.version, core.version))
    return context.violations.report(
      'I6',
      `${id} claims version ${core.version.v} and holds ${replica?.version.v ?? 'nothing'}`,
    )
  context.history.check(id, replica)
  if (!claimLeadsTo(core, core.version))
    context.violations.report('I6', `${id} would claim another version than ${core.version.v}, which it holds`)
}

/** Claims that were found right, by member: folding a long tail after every event would take most of the time. */
const proven = new WeakMap<MemberCore, string>()

function claimLeadsTo(core: MemberCore, version: VersionRef): boolean {
  const claim = `${core.base.id} ${core.tail.length} ${version.id}`
  if (proven.get(core) === claim) return true
  const claimed = fold(core.base, core.tail)
  if (claimed === undefined || !sameVersion(claimed, version)) return false
  proven.set(core, claim)
  return true
}

/** What members claimed in the ballot of this coordinator that was last open. */
const claimsHeard = new WeakMap<RunState, ReadonlyMap<MemberId, Claim | null>>()

/** R5: an invented step is the target of a ballot only when no other claim holds the committed version. */
function checkOneVoice({ invented, history, violations }: Context, { state }: CoordinatorProcess): void {
  const { phase, chain, rings } = state
  if (phase.type === 'freeze') claimsHeard.set(state, phase.claims)
  if (phase.type !== 'form') return
  let version = chain.head
  for (const record of phase.records) {
    version = extend(version, record)
    const liar = invented.get(version.id)
    if (liar === undefined || rings.get(record.generation)?.length === 1) continue
    const others = [...(claimsHeard.get(state) ?? [])].flatMap(([id, claim]) => {
      const held = id === liar || claim === null ? undefined : fold(claim.base, claim.records)
      return held !== undefined && history.descends(held, chain.head) ? [held] : []
    })
    if (others.length > 0 && !others.some((held) => history.descends(held, version)))
      violations.report('one-voice', `${liar} alone claims version ${version.v}, and all are to hold it`)
  }
}

/** I2 */
function checkGenerations(context: Context, volunteers: readonly VolunteerProcess[]): void {
  const running = volunteers.filter(({ core }) => core.ring?.stage === 'running')
  for (const one of running)
    for (const other of running) {
      if (one.id >= other.id || !sameRing(one.core, other.core)) continue
      const [a, b] = [one.core.version, other.core.version]
      if (a === undefined || b === undefined || Math.abs(a.v - b.v) > 1)
        context.violations.report(
          'I2',
          `${one.id} is at ${a?.v}, ${other.id} at ${b?.v} in generation ${one.core.ring?.generation}`,
        )
      else if (a.v === b.v && a.id !== b.id)
        context.violations.report(
          'I2',
          `${one.id} and ${other.id} hold different versions ${a.v} in generation ${one.core.ring?.generation}`,
        )
    }
}

/** After a journal was restored, a number may come again under another owner. */
function sameRing(one: MemberCore, other: MemberCore): boolean {
  return one.ring?.generation === other.ring?.generation && one.ring?.fence === other.ring?.fence
}

/** I3: what is committed is in every member of the running generation. */
function checkPrefix(context: Context, volunteers: readonly VolunteerProcess[], { state }: CoordinatorProcess): void {
  if (state.phase.type !== 'ring') return
  const { head } = state.chain
  for (const { id, core } of volunteers)
    if (
      core.ring?.stage === 'running' &&
      core.ring.generation === state.generation &&
      core.ring.fence === state.fence &&
      (core.version === undefined || !context.history.descends(core.version, head))
    )
      context.violations.report(
        'I3',
        `${id} runs in generation ${state.generation} without the committed version ${head.v}`,
      )
}

/** I4: DONE is what the committed version holds. */
function checkDone(context: Context, { state }: CoordinatorProcess): void {
  const counts = context.history.counts(state.chain.head)
  if (counts === undefined)
    return context.violations.report('I4', `version ${state.chain.head.v} is committed and no member made it`)
  for (let epoch = 0; epoch < state.config.epochs; epoch++)
    for (let index = 0; index < state.config.blocks; index++) {
      const block = trainingBlock(epoch, index)
      if (state.chain.isDone(block) !== (counts[context.history.seat(block)] === 1))
        context.violations.report(
          'I4',
          `block ${block} is ${state.chain.isDone(block) ? '' : 'not '}done and in version ${state.chain.head.v} ` +
            'it is otherwise',
        )
    }
}

/** Before an entry takes effect: a start needs all members at its version, a rewind that no member holds more. */
export function checkEntry(
  context: Context,
  volunteers: readonly VolunteerProcess[],
  coordinator: CoordinatorProcess,
  entry: JournalEntry & { readonly head: VersionRef },
): void {
  if (entry.type === 'start') checkStart(context, volunteers, coordinator, entry)
  // A final rewind gives up what one member alone vouches for (A5, disputes): that it is honest is not known.
  if (entry.type === 'rewind' && entry.final !== true) checkRewind(context, volunteers, coordinator, entry)
}

/** I3: a committed version is held whole by all members of the generation (R8). */
function checkStart(
  context: Context,
  volunteers: readonly VolunteerProcess[],
  { state }: CoordinatorProcess,
  { generation, members }: { readonly generation: number; readonly members: readonly string[] },
): void {
  const { head } = state.chain
  for (const { id, alive, core } of volunteers)
    if (
      alive &&
      members.includes(id) &&
      core.promised === generation &&
      (core.version === undefined || !sameVersion(core.version, head))
    )
      context.violations.report(
        'I3',
        `generation ${generation} starts after version ${head.v}, ${id} is at ${core.version?.v ?? 'nothing'}`,
      )
}

function checkRewind(
  context: Context,
  volunteers: readonly VolunteerProcess[],
  { state, sessions }: CoordinatorProcess,
  { head }: { readonly head: VersionRef },
): void {
  for (const { id, alive, core } of volunteers) {
    const since = state.members.get(id)?.joinedAt ?? Number.POSITIVE_INFINITY
    const inReach = alive && sessions.get(id)?.up === true && context.agenda.now - since > IN_REACH_MS
    if (inReach && core.version !== undefined && context.history.descends(core.version, head))
      context.violations.report('lost-work', `version ${head.v} is given up, ${id} holds it and was connected`)
  }
}

/** R2: those that worked in a ring stop for no newcomer that is mute, or does not hold what it says. */
export function checkForm(
  context: Context,
  volunteers: readonly VolunteerProcess[],
  { state }: CoordinatorProcess,
  { generation, members }: { readonly generation: number; readonly members: readonly MemberId[] },
): void {
  const worked = new Set([...state.rings.values()].flat())
  const odd = volunteers.find(
    ({ id, newcomer }) => (newcomer === 'mute' || newcomer === 'wrong') && members.includes(id) && !worked.has(id),
  )
  if (odd !== undefined && members.some((id) => worked.has(id)))
    context.violations.report('newcomer', `generation ${generation} takes in ${odd.id}, which is ${odd.newcomer}`)
}
