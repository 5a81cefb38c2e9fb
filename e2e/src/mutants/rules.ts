// A mutant for each rule of docs/RULES.md, and for each duty of the shells that the rules rest on. The world
// (e2e/src/world) runs production with one of them and must see a violation; where it cannot, the named test must fail.
import type { GridOptions } from '../world/scenario.ts'
import type { Mutant } from './mutant.ts'

export interface RuleMutant extends Mutant {
  /** a row of docs/RULES.md */
  readonly rule: string
  /** in which a violation was seen; absent: the world does not reach it, and `tests` must fail */
  readonly world?: { readonly seed: number; readonly options?: GridOptions }
}

const AREA = 'rules'

const RUN = 'coordinator/src/run'
/** Of two members one uploads nothing, and the other opens no link. */
const STRANDED: GridOptions = {
  mode: 'ring',
  faults: 0,
  defect: 'no-uploads',
  members: { linkless: true, slowness: 1 },
}
const MEMBER = 'volunteer/src/member'

export const RULE_MUTANTS: readonly RuleMutant[] = [
  {
    area: AREA,
    rule: 'R1',
    breaks: 'R1: what depends on a row leaves before the row is durable',
    file: 'coordinator/src/host/outbox.ts',
    from: 'if (!(await this.#save(rows))) return this.#abandon(batch)',
    to: 'void this.#save(rows)',
    tests: ['coordinator/test/disk-trouble'],
    world: { seed: 1 },
  },
  {
    area: AREA,
    rule: 'R2',
    breaks: 'R2: a restarted coordinator continues the generation of the one before',
    file: `${RUN}/ballot/ballot.ts`,
    from: `transition.note('generation', \`ballot \${state.generation}: \${options.reason}\`)`,
    to: `if (options.reason === 'the coordinator started again' && goal === 'ring' && options.wait?.length > 0) {
      const members = options.wait
      const exchange = { type: 'ring', reason: 'as before', costs: null }
      return void enterRing(transition, { members, relayed: [], exchange, weights: members.map(() => 1) })
    }`,
    tests: ['coordinator/test/run-ballot'],
  },
  {
    area: AREA,
    rule: 'R2-proof',
    breaks: 'R2-proof: a newcomer counts as proven at once',
    file: `${RUN}/ballot/proofs.ts`,
    from: 'if (known(state, id).proven || stepsHeld > 0) return true',
    to: 'return true',
    tests: ['coordinator/test/run-admissions'],
    world: { seed: 4, options: { mode: 'ring' } },
  },
  {
    area: AREA,
    rule: 'R3',
    breaks: 'R3: a member that answered a freeze goes on with its ring',
    file: `${MEMBER}/member.ts`,
    from: `core.ring = undefined
  core.learning = undefined
  core.proving = undefined
  return [
    { type: 'halt' },`,
    to: `return [`,
    tests: ['volunteer/test/member.test'],
  },
  {
    area: AREA,
    rule: 'R3-equal',
    breaks: 'R3-equal: a ballot that was answered is not answered again',
    file: `${MEMBER}/member.ts`,
    from: 'core.promised = generation\n  core.asyncEpoch = undefined\n  const claim',
    to: `if (core.promised === generation) return []
  core.promised = generation
  core.asyncEpoch = undefined
  const claim`,
    tests: ['volunteer/test/member.test'],
  },
  {
    area: AREA,
    rule: 'R4',
    breaks: 'R4: a claim of another branch is a version',
    file: `${RUN}/ballot/claims.ts`,
    from: 'if (!onChain) return undefined',
    to: '',
    tests: ['coordinator/test/run-ballot.test'],
  },
  {
    area: AREA,
    rule: 'R5',
    breaks: 'R5: what one member alone claims beyond the committed chain is taken',
    file: `${RUN}/ballot/claims.ts`,
    from: 'if (isBacked(state, claim, claims) || !isCommittedElsewhere(state, claim, claims)) return true',
    to: 'return true',
    tests: ['coordinator/test/run-ballot.test'],
  },
  {
    area: AREA,
    rule: 'R6',
    breaks: 'R6: blocks of versions that a rewind gives up stay done',
    file: `${RUN}/queue/chain-index.ts`,
    from: 'for (const record of gone) for (const block of record.blocks) this.#done.delete(block)',
    to: '',
    tests: ['coordinator/test/chain-index'],
    world: { seed: 15 },
  },
  {
    area: AREA,
    rule: 'R7',
    breaks: 'R7: a number is taken for a version',
    file: `${MEMBER}/forming.ts`,
    from: 'return way !== undefined && sameVersion(way, version) ?',
    to: 'return way !== undefined ?',
    tests: ['volunteer/test/member.test', 'volunteer/test/learner'],
  },
  {
    area: AREA,
    rule: 'R7-source',
    breaks: 'R7-source: a member serves what it holds under the name that is asked for',
    file: `${MEMBER}/member.ts`,
    from: 'return core.promised === generation && core.version !== undefined && sameVersion(core.version, version)',
    to: 'return core.version !== undefined',
    tests: ['volunteer/test/member.test'],
  },
  {
    area: AREA,
    rule: 'R7-learner',
    breaks: 'R7-learner: a member claims the target before it has adopted it',
    file: `${MEMBER}/forming.ts`,
    from: `sources }]
  return fetchWhole(core, ring)`,
    to: `sources }]
  setVersion(core, target, ring)
  return fetchWhole(core, ring)`,
    tests: ['volunteer/test/member.test'],
    world: { seed: 1 },
  },
  {
    area: AREA,
    rule: 'R8',
    breaks: 'R8: a ring starts with the first CONFIRM',
    file: `${RUN}/ballot/ballot.ts`,
    from: 'if (phase.confirmed.size < phase.members.length) return',
    to: '',
    tests: ['coordinator/test/run-ballot.test'],
    world: { seed: 3 },
  },
  {
    area: AREA,
    rule: 'R9',
    breaks: 'R9: a member works on START alone, whatever it holds',
    file: `${MEMBER}/member.ts`,
    from: 'if (!premise) return []',
    to: '',
    tests: ['volunteer/test/member.test'],
  },
  {
    area: AREA,
    rule: 'R10',
    breaks: 'R10: a step is applied before all its buckets are there',
    file: 'volunteer/src/reduce/reduce.ts',
    from: 'if (!this.done) throw',
    to: 'if (false) throw',
    tests: ['volunteer/test/ring-reduce'],
  },
  {
    area: AREA,
    rule: 'R11',
    breaks: 'R11: the first HELD commits a step',
    file: `${RUN}/ring/ring.ts`,
    from: 'if (entry.by.size < phase.members.length && !isFollowed) break',
    to: '// the first HELD commits',
    tests: ['coordinator/test/run-ring.test'],
    world: { seed: 1 },
  },
  {
    area: AREA,
    rule: 'R12',
    breaks: 'R12: blocks that are planned are planned again',
    file: `${RUN}/queue/scheduler.ts`,
    from: 'const given = new Set<BlockId>([...planned.values()].flat())',
    to: 'const given = new Set<BlockId>()',
    tests: ['coordinator/test/run-ring.test'],
    world: { seed: 1 },
  },
  {
    area: AREA,
    rule: 'R12-done',
    breaks: 'R12-done: what was planned once is never planned again',
    file: `${RUN}/queue/scheduler.ts`,
    from: 'const last = Math.min(state.chain.head.v + window,',
    to: `const ever = ((state as { ever?: Set<BlockId> }).ever ??= new Set())
  for (const block of given) ever.add(block)
  for (const block of ever) given.add(block)
  const last = Math.min(state.chain.head.v + window,`,
    tests: ['coordinator/test/run-ballot'],
    world: { seed: 8 },
  },
  {
    area: AREA,
    rule: 'R12-moves',
    breaks: 'R12-moves: a member computes blocks that it gave up',
    file: `${MEMBER}/assignment.ts`,
    from: 'if (open !== undefined) open.todo = open.todo.filter((block) => !blocks.includes(block))',
    to: '',
    tests: ['volunteer/test/assignment.test'],
    world: { seed: 8 },
  },
  {
    area: AREA,
    rule: 'R12-moves',
    breaks: 'R12-moves: manifests that hold a block twice end no step',
    file: `${MEMBER}/member.ts`,
    from: 'const liar = wrongAssignment(ring, step, manifests)',
    to: 'const liar = undefined',
    tests: ['volunteer/test/assignment.test', 'volunteer/test/member.test'],
  },
  {
    area: AREA,
    rule: 'R13',
    breaks: 'R13: an epoch begins before the one before is on the chain',
    file: `${RUN}/queue/scheduler.ts`,
    from: 'return freeIn(state, { epoch: currentEpoch(state), taken, ...wanted })',
    to: `const epoch = currentEpoch(state)
  const free = freeIn(state, { epoch, taken, ...wanted })
  if (free.length > 0 || epoch + 1 >= state.config.epochs) return free
  return freeIn(state, { epoch: epoch + 1, taken, ...wanted })`,
    tests: ['coordinator/test/run-ring.test'],
    world: { seed: 4 },
  },
  {
    area: AREA,
    rule: 'R14',
    breaks: 'R14: a member goes on beyond the window when no acknowledgement comes',
    file: `${MEMBER}/member.ts`,
    from: 'core.tail.length >= PLAN_WINDOW',
    to: 'false',
    tests: ['volunteer/test/member.test'],
  },
  {
    area: AREA,
    rule: 'R15',
    breaks: 'R15: an upload is a checkpoint at once',
    file: `${RUN}/history/checkpoints.ts`,
    from: `at: transition.now,
  }
  considerUpload(transition)`,
    to: `at: transition.now,
  }
  if (state.phase.type === 'ring') return accept(transition, { agreeing: 1, members: state.phase.members.length })
  considerUpload(transition)`,
    tests: ['coordinator/test/run-checkpoints'],
    world: { seed: 1 },
  },
  {
    area: AREA,
    rule: 'R16',
    breaks: 'R16: a rewind takes ballots back',
    file: `${RUN}/ballot/rewind.ts`,
    from: "transition.tell(({ rewound }) => rewound?.(transition, 'rewind'))",
    to: "transition.journal({ type: 'ballot', generation: 1 })",
    tests: ['coordinator/test/run-ballot'],
    world: { seed: 15 },
  },
  {
    area: AREA,
    rule: 'R17',
    breaks: 'R17: a member that fails again and again stays in the ring',
    file: `${RUN}/ring/membership.ts`,
    from: `if (member === undefined) return
  const { excludeMs }`,
    to: `if (member !== undefined) return
  const { excludeMs }`,
    tests: ['coordinator/test/run-links', 'coordinator/test/run-stalls'],
  },
  {
    area: AREA,
    rule: 'R17-stranded',
    breaks: 'R17-stranded: a version that can be had in no way is waited for without end',
    file: `${RUN}/ballot/stranded.ts`,
    from: 'return { isGivenUp: true, reason: tries }',
    to: 'return { isGivenUp: false, reason: tries }',
    tests: ['coordinator/test/run-stranded'],
    world: { seed: 8, options: STRANDED },
  },
  {
    area: AREA,
    rule: 'R17-stranded',
    breaks: 'R17-stranded: a version is given up after failed uploads, although other members can fetch it',
    file: `${RUN}/ballot/stranded.ts`,
    from: 'if (Math.min(uploads, fetches) < MOST_TRIES)',
    to: 'if (uploads < MOST_TRIES)',
    tests: ['coordinator/test/run-stranded'],
  },
  {
    area: AREA,
    rule: 'R18-source',
    breaks: 'R18-source: no source outside the ring is reached through the coordinator',
    file: `${RUN}/links/source-links.ts`,
    from: 'links.push({ member, source })',
    to: 'continue',
    tests: ['coordinator/test/run-links', 'coordinator/test/run-unreached'],
    world: { seed: 12454 },
  },
  {
    area: AREA,
    rule: 'R18-source',
    breaks: 'R18-source: a source does not open its end of a relayed link',
    file: 'volunteer/src/generation/generation-links.ts',
    from: "for (const peer of relayed) links.ensure(peer, 'relay', signal).catch(() => undefined)",
    to: '',
    tests: ['coordinator/test/run-links'],
    world: { seed: 12454 },
  },
  {
    area: AREA,
    rule: 'A1',
    breaks: 'A1: a block whose sum is on its way into a step is leased again',
    file: `${RUN}/ring/off-ring.ts`,
    from: 'return isTaken(state, block) || (given?.blocks.includes(block) ?? false)',
    to: 'return isTaken(state, block)',
    tests: ['coordinator/test/run-off-ring'],
    world: { seed: 6, options: { members: { linkless: true } } },
  },
  {
    area: AREA,
    rule: 'A2',
    breaks: 'A2: pushes are taken whatever their tokens',
    file: `${RUN}/async/leases.ts`,
    from: `if (push.modeEpoch !== state.modeEpoch)
    return { verdict`,
    to: `return undefined
  if (push.modeEpoch !== state.modeEpoch)
    return { verdict`,
    tests: ['coordinator/test/run-async.test'],
  },
  {
    area: AREA,
    rule: 'G1',
    breaks: 'G1: a version names some blocks of a round and not others',
    file: `${RUN}/async/accumulator.ts`,
    from: 'for (const { block } of push.leases) open.blocks.add(block)',
    to: 'for (const { block } of push.leases.slice(0, Math.max(1, push.leases.length - 1))) open.blocks.add(block)',
    tests: ['coordinator/test/run-groups'],
    world: { seed: 1, options: { mode: 'async', members: { grouped: true } } },
  },
  {
    area: AREA,
    rule: 'G2',
    breaks: 'G2: the first round of many makes a version of its own',
    file: `${RUN}/async/accumulator.ts`,
    from: 'if (state.config.async.groups !== undefined) return Math.max(1, pushesAsked(state, expected(state)))',
    to: 'if (state.config.async.groups !== undefined) return 1',
    tests: ['coordinator/test/run-groups'],
  },
  {
    area: AREA,
    rule: 'G2',
    breaks: 'G2: rounds take as long as the line allows, however often members leave',
    file: `${RUN}/groups/round-length.ts`,
    from: 'const shorter = kept < cheap ?',
    to: 'const shorter = kept < 0 ?',
    tests: ['coordinator/test/round-length'],
  },
  {
    area: AREA,
    rule: 'G2',
    breaks: 'G2: with `update: all` a version does not wait for those that did not ask yet',
    file: `${RUN}/async/accumulator.ts`,
    from: "if (update === 'all') return isIdle && (nothingFree(state) || isForsaken(state, now))",
    to: '',
    tests: ['coordinator/test/run-groups'],
  },
  {
    area: AREA,
    rule: 'A4',
    breaks: 'A4: a parameter server goes on from the version that its journal names',
    file: `${RUN}/run.ts`,
    from: 'if (newestCheckpoint(state).version.v < state.chain.head.v)',
    to: `return transition.enqueue({ type: 'enter-async' })
  if (newestCheckpoint(state).version.v < state.chain.head.v)`,
    tests: ['coordinator/test/run-async.test'],
    world: { seed: 11 },
  },
  {
    area: AREA,
    rule: 'A5',
    breaks: 'A5: the parameter server starts from the newest checkpoint',
    file: `${RUN}/ballot/handover.ts`,
    from: 'if (isSaved) {',
    to: 'if (isSaved || held.v > 0) {',
    tests: ['coordinator/test/run-agreement'],
  },
  {
    area: AREA,
    rule: 'A6',
    breaks: 'A6: a ring begins without the newest version of the parameter server',
    file: `${RUN}/async/async.ts`,
    from: 'if (settled) return settle(transition)',
    to: 'return settle(transition)',
    tests: ['coordinator/test/run-async.test'],
  },
  {
    area: AREA,
    rule: 'A7',
    breaks: 'A7: inner progress goes on in an assignment that does not hold all of it',
    file: 'volunteer/src/local/local-round.ts',
    from: ' && known.blocks.every((block) => blocks.includes(block)))',
    to: ')',
    tests: ['volunteer/test/local-round'],
  },
  {
    area: AREA,
    rule: 'R3',
    breaks: 'R3: a gradient that outlives its assignment counts',
    file: 'volunteer/src/compute.ts',
    from: `if (!this.#isOver) return result
    this.#release()
    return undefined`,
    to: `if (this.#isOver) this.#release()
    return result`,
    tests: ['volunteer/test/ring-gradients', 'volunteer/test/gradient-buffers'],
  },
  {
    area: AREA,
    rule: 'R3',
    breaks: 'R3: a member forgets with a freeze what it holds',
    file: 'volunteer/src/member/member.ts',
    from: 'const claim = claimOf(core, committed)',
    to: `core.version = undefined
  const claim = claimOf(core, committed)`,
    tests: ['volunteer/test/member.test'],
    world: { seed: 1 },
  },
  {
    area: AREA,
    rule: 'R16',
    breaks: 'R16: a coordinator that starts again leases with numbers that were used',
    file: 'coordinator/src/run/async/leases.ts',
    from: 'state.leaseEpoch = state.leasesReserved',
    to: '',
    tests: ['coordinator/test/run-async.test'],
    world: { seed: 22 },
  },
  {
    area: AREA,
    rule: 'R10',
    breaks: 'R10: a step is applied and its version not kept',
    file: 'volunteer/src/recovery/local-version.ts',
    from: `this.#version = version
    this.#reduced.push`,
    to: 'this.#reduced.push',
    tests: ['volunteer/test/ring-gradients', 'volunteer/test/state-fetch'],
    world: { seed: 1 },
  },
  {
    area: AREA,
    rule: 'R2',
    breaks: 'R2: rows of a coordinator that was replaced are written',
    file: 'coordinator/src/journal/sqlite.ts',
    from: 'requireFence(job, fence, own)\n        requireListed',
    to: 'void own\n        requireListed',
    tests: ['coordinator/test/journal.test'],
  },
  {
    area: AREA,
    rule: 'R4',
    breaks: 'R4: a state is kept for the next visit without the records since the last acknowledged version',
    file: 'volunteer/src/recovery/kept-state.ts',
    from: 'new TextEncoder().encode(JSON.stringify(claim))',
    to: 'new TextEncoder().encode(JSON.stringify({ ...claim, records: [] }))',
    tests: ['volunteer/test/kept-state'],
  },
  {
    area: AREA,
    rule: 'R15',
    breaks: 'R15: a checkpoint that cannot be read stays the newest',
    file: `${RUN}/history/damaged-checkpoint.ts`,
    from: "transition.journal({ type: 'checkpoint-damaged', version })",
    to: '',
    tests: ['coordinator/test/run-damaged-checkpoint'],
  },
  {
    area: AREA,
    rule: 'R1',
    breaks: 'R1: a snapshot forgets which blocks are set aside',
    file: `${RUN}/history/snapshot.ts`,
    from: 'refill(state.quarantined, written.quarantined)',
    to: 'refill(state.quarantined, [])',
    tests: ['coordinator/test/snapshot'],
  },
  {
    area: AREA,
    rule: 'R6',
    breaks: 'R6: a run that pauses for another job gives up the steps since its newest checkpoint',
    file: `${RUN}/ring/parking.ts`,
    from: 'if (unsaved(state) === 0) return onParked(transition)',
    to: 'return onParked(transition)',
    tests: ['coordinator/test/run-parking'],
  },
]
