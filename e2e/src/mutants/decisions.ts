// Mutants of the coordinator's decisions: commits, ballots, claims, leases, modes.
import { type Mutant, mutantsOf } from './mutant.ts'

const COMMIT = 'ring commit'
const BALLOTS = 'ballots'
const CLAIMS = 'claims'
const QUEUE = 'queue'
const STATES = 'disputed states'
const MODES = 'modes'
const SCHEDULE = 'schedule of jobs'

export const DECISIONS: readonly Mutant[] = [
  ...mutantsOf(
    SCHEDULE,
    'coordinator/src/jobs/schedule.ts',
    ['coordinator/test/schedule'],
    [
      ['a job of a lower priority comes first', 'b.priority - a.priority ||', 'a.priority - b.priority ||'],
      [
        'of equal priorities the latest comes first',
        'a.submittedAt - b.submittedAt ||',
        'b.submittedAt - a.submittedAt ||',
      ],
      ['a running job gives its minimum away', 'sizeOf(donor) - (isYielding ? 0 : donor.job.min)', 'sizeOf(donor)'],
      ['a job grows beyond its maximum', 'return sizeOf(crew) < crew.job.max', 'return sizeOf(crew) <= crew.job.max'],
      [
        'a later job starts with what an earlier one waits for',
        'else if (this.#isReachable(crew)) awaited.push(crew.job)',
        '',
      ],
      [
        'a job that can never start keeps volunteers from others',
        'else if (this.#isReachable(crew)) awaited.push(crew.job)',
        'else awaited.push(crew.job)',
      ],
      ['a job starts below its minimum', 'sizeOf(crew) + usable.length >= crew.job.min', 'usable.length > 0'],
      ['a volunteer moves again at once', 'this.#now - lender.since >= STAY_MS && ', ''],
      ['a move costs nothing', 'return gainOf(to) - lossOf(from) - cost', 'return gainOf(to) - lossOf(from)'],
      ['priority does not count in growth', 'return 2 ** priority', 'return 1 + 0 * priority'],
      ['a job that declined it gets the volunteer', ' && !declines.has(job.id)', ''],
      ['an adapter without a GPU counts as one', '(job.realGpu && realGpu === false) || ', ''],
      ['an adapter without shader-f16 is given a job that requires it', '(job.f16 && f16 === false)', 'false'],
      [
        'the choice of an owner counts for nothing',
        'return (chosen === undefined || chosen === job.id) && ',
        'return ',
      ],
      [
        'members leave a job while it agrees on a ring',
        'return !isReforming && (!isRunning || members > min)',
        'return !isRunning || members > min || isReforming',
      ],
      [
        'growth goes to the job that it helps least',
        'gainOf(crew) > gainOf(best) ? crew : best',
        'gainOf(crew) < gainOf(best) ? crew : best',
      ],
      ['a slope that was measured is not believed', 'if (before === undefined)', 'if (before !== undefined || true)'],
      [
        'volunteers that no job can use stay idle',
        'else if (gathering !== undefined)',
        'else if (gathering === growing)',
      ],
    ],
  ),
  ...mutantsOf(
    COMMIT,
    'coordinator/src/run/ballot/proofs.ts',
    ['coordinator/test/run-admissions'],
    [
      [
        'R2: a proof passes on the word of the newcomer alone',
        'const SAYING_THE_SAME = 2',
        'const SAYING_THE_SAME = 1',
      ],
      ['R2: a proof that differs from the majority passes', 'if (isSettled && digest === own)', 'if (isSettled)'],
      [
        'a link that did not open is dialled again in the first ring',
        'if (!linked.includes(peer) && digest !== null) noteUnopened(transition, id, peer)',
        '',
      ],
    ],
  ),
  ...mutantsOf(
    STATES,
    'coordinator/src/run/ballot/derived-state.ts',
    ['coordinator/test/run-derived-state'],
    [
      [
        'R15-derived: two liars of three outvote the derived state',
        "return truth.type === 'known' ? agreementWith(truth.digest, doubted.said) : agreementOf(doubted.said)",
        'return agreementOf(doubted.said)',
      ],
      [
        'R15-derived: a derived state that no member holds is believed',
        'if ([...doubted.said.values()].includes(derived.digest)) return',
        'return',
      ],
    ],
  ),
  ...mutantsOf(
    STATES,
    'coordinator/src/run/ballot/dissent.ts',
    ['coordinator/test/run-derived-state'],
    [
      [
        'R15-derived: a false checkpoint of two quick liars stays',
        "if (truth.type === 'known' && truth.digest !== blob) return takeBack(transition, checkpoint, truth.digest)",
        '',
      ],
    ],
  ),
  ...mutantsOf(
    STATES,
    'coordinator/src/run/ballot/handover.ts',
    ['coordinator/test/run-derived-state', 'coordinator/test/run-agreement'],
    [['A5: two holders that are quick are believed before the third', 'if (!isHeard) return', '']],
  ),
  ...mutantsOf(
    COMMIT,
    'coordinator/src/run/ring/ring.ts',
    [
      'coordinator/test/run-ring',
      'coordinator/test/run-mode-policy',
      'coordinator/test/run-rebalance',
      'coordinator/test/run-off-ring',
      'coordinator/test/run-ballot-pace',
    ],
    [
      [
        'R11: a step is committed when the first member holds it',
        'if (entry.by.size < phase.members.length && !isFollowed) break',
        '',
      ],
      [
        'R11: one member alone says what a step is',
        'const isFollowed = entry.by.size >= SAYING_THE_SAME &&',
        'const isFollowed =',
      ],
      [
        'R11: the member one step ahead proves nothing',
        'if (entry.by.size < phase.members.length && !isFollowed) break',
        'if (entry.by.size < phase.members.length) break',
      ],
      [
        'a step without its planned blocks is committed',
        'blocks !== planned.join() && blocks !== [',
        'false && blocks !== [',
      ],
      [
        'a record of another generation is committed',
        'if (record.generation !== state.generation || record.modeEpoch',
        'if (record.modeEpoch',
      ],
      [
        'different records of one step are one',
        'if (!sameRecord(entry.record, record)) return beginDispute',
        'if (false) return beginDispute',
      ],
      [
        'a commit does not reset the count of aborts in a row',
        'state.health.consecutiveAborts = 0\n  state.health.aborts = []',
        'state.health.aborts = []',
      ],
      [
        'an abort from outside the ring ends it',
        'if (!state.phase.members.includes(member)) return\n  state.health.disturbedAt',
        'state.health.disturbedAt',
      ],
    ],
  ),
  ...mutantsOf(
    COMMIT,
    'coordinator/src/run/ring/stalls.ts',
    ['coordinator/test/run-ring', 'coordinator/test/run-stalls'],
    [
      [
        'a ring that makes no progress is left alone',
        'if (working && now - phase.progressAt > stallMs)',
        'if (working && now - phase.progressAt > 1e9)',
      ],
    ],
  ),
  ...mutantsOf(
    BALLOTS,
    'coordinator/src/run/ballot/ballot.ts',
    [
      'coordinator/test/run-ballot',
      'coordinator/test/run-ring',
      'coordinator/test/run-checkpoints',
      'coordinator/test/run-async',
      'coordinator/test/run-agreement',
      'coordinator/test/run-unreached',
    ],
    [
      [
        'a source outside the ring is not told who fetches from it',
        'of meetings({ members, sources }, viaUs)',
        'of [] as ReturnType<typeof meetings>',
      ],
      [
        'a CONFIRM of another version counts',
        'if (version.id !== phase.target.id) return transition.refuse',
        'if (version.v !== phase.target.v) return transition.refuse',
      ],
      [
        'a member of other parameters goes on with them',
        'member.drifted = phase.target.v > 0',
        'member.drifted = false',
      ],
      [
        'drift is judged by the majority although the checkpoint is known',
        'if (version.id === phase.target.id && blob !== undefined &&',
        'if (false && blob !== undefined &&',
      ],
      ['R6: a liar ends the wait for a lost version', '&& implausible(state, valid) === undefined', ''],
      [
        'R8: a start commits nothing',
        "transition.journal({ type: 'start', generation: state.generation, members, records })",
        "transition.journal({ type: 'start', generation: state.generation, members, records: [] })",
      ],
      [
        'A7: what a round learned from is given out again',
        'blocks.filter((block) => free.delete(block))',
        'blocks.filter(() => false)',
      ],
    ],
  ),
  ...mutantsOf(
    COMMIT,
    'coordinator/src/run/history/completion.ts',
    ['coordinator/test/run-ring', 'coordinator/test/run-ballot', 'coordinator/test/run-checkpoints'],
    [
      [
        'the run ends before its last version is written',
        'if (newestCheckpoint(state).version.id !== head.id) return `trained; writing version ${head.v}`\n',
        '',
      ],
      [
        'an owner ends a run in the midst of an epoch',
        'const epochs = currentEpoch(state) + 1',
        'const epochs = currentEpoch(state)',
      ],
    ],
  ),
  ...mutantsOf(
    BALLOTS,
    'coordinator/src/run/ballot/rewind.ts',
    ['coordinator/test/run-ballot'],
    [
      [
        'a rewind is not in the journal',
        "  transition.journal({ type: 'rewind', to: version, " +
          '...(final ? { final: true as const, generation: state.generation } : {}) })\n',
        '',
      ],
    ],
  ),
  ...mutantsOf(
    CLAIMS,
    'coordinator/src/run/ballot/claims.ts',
    ['coordinator/test/run-ballot', 'coordinator/test/hostile-messages', 'coordinator/test/run-checkpoints'],
    [
      ['R5: the lowest claim wins', 'b.version.v - a.version.v ||', 'a.version.v - b.version.v ||'],
      ['R5: ties do not go to the newer generation', 'b.lastGeneration - a.lastGeneration ||', ''],
      [
        'R5: one member alone decides what a step ahead of all others is',
        'return mayDecide(transition, first, claims) ? first',
        'return first ? first',
      ],
      [
        'R5: what the claimant itself said backs its claim',
        '[...said.by].some((id) => id !== member)) return true',
        'said.by.size > 0) return true',
      ],
      [
        'R5: the only claim that holds the committed version is dropped',
        'if (isBacked(state, claim, claims) || !isCommittedElsewhere(state, claim, claims)) return true',
        'if (isBacked(state, claim, claims)) return true',
      ],
      [
        'a block that is counted already is claimed again',
        'if (seen.has(block) || state.chain.isDone(block)) return',
        'if (seen.has(block)) return',
      ],
      ['blocks of validation are claimed as trained', "block.startsWith('v:') ||", ''],
      ['blocks of an epoch that never comes are believed', 'epochOf(block) >= state.config.epochs ||', ''],
      [
        'blocks that the dataset does not have are believed',
        ' ||\n        blockIndex(block) >= blocksIn(state, epochOf(block))',
        '',
      ],
      [
        'steps of a generation that never ran are believed',
        "if (!mayHaveRun(state, generation) || kind === 'async') return",
        "if (kind === 'async') return",
      ],
    ],
  ),
  ...mutantsOf(
    CLAIMS,
    'coordinator/src/run/ballot/restored.ts',
    ['coordinator/test/run-restored'],
    [
      ['a ballot stays below what members promised', 'Math.max(generation, heard.generation) + 1', 'generation + 1'],
      ['the number of an owner stays below what members heard', 'heard.fence > fence ? [{', 'false ? [{'],
      ['one member is believed about lost steps', '.length > 1) return true', '.length > 0) return true'],
      ['any promise is believed', 'if (seen.generation > state.generation + BALLOTS_AHEAD ||', 'if ('],
    ],
  ),
  ...mutantsOf(
    QUEUE,
    'coordinator/src/run/queue/scheduler.ts',
    ['coordinator/test/run-ring', 'coordinator/test/run-quarantine', 'coordinator/test/run-async'],
    [
      ['R12: a planned block is planned again', 'given.has(block) || isTaken(block)', 'isTaken(block)'],
      [
        'a block that was set aside is planned',
        ' || (quarantined.size > 0 && quarantined.has(trainingBlock(epoch, index)))',
        '',
      ],
      ['the run goes on after stop.steps', 'mostSteps ?? Number.POSITIVE_INFINITY', 'Number.POSITIVE_INFINITY'],
    ],
  ),
  ...mutantsOf(
    QUEUE,
    'coordinator/src/run/queue/scheduler.ts',
    ['coordinator/test/run-groups'],
    [['the blocks of a round lie anywhere', 'makesRounds(state.config.async.groups) ?', 'false ?']],
  ),
  ...mutantsOf(
    QUEUE,
    'coordinator/src/run/async/leases.ts',
    ['coordinator/test/run-data-parts'],
    [
      ['what data costs counts as exchange', 'if (fetches.length === 0) measureExchange(', 'measureExchange('],
      ['a round that was cut counts as exchange', 'return // it says when it was cut', ''],
      ['who gave a round up keeps data that it has not', 'leftUndone(state, id, { blocks, fetches }, 0)', ''],
      [
        'all blocks of a late round are suspected',
        'hasRounds(state) ? blocks.slice(0, state.config.batchBlocks) : blocks',
        'blocks',
      ],
    ],
  ),
  ...mutantsOf(
    QUEUE,
    'coordinator/src/run/groups/data-parts.ts',
    ['coordinator/test/run-data-parts'],
    [
      [
        'members get blocks of shards that others have',
        'const kept = members.map(',
        'const kept = members.slice(members.length).map(',
      ],
      ['newcomers take what others have', 'if (fewest === 0) break', 'break'],
      ['what a member had stays its own after it left', "own(state, 'parts').forget(id)", 'undefined'],
      ['a member keeps shards that it did not come to', 'if (!known.has(unit)) own(', 'if (known.has(unit)) own('],
      [
        'a member gives up shards that it had',
        'for (const unit of fetches) if',
        "for (const unit of own(state, 'parts').of(member)) if",
      ],
      ['what is on its way is given away', 'blocks.slice(0, done + state.config.batchBlocks)', 'blocks.slice(0, done)'],
      [
        'suspected blocks are computed with others',
        'failures.size === 0 ? blocks : blocks.filter((block) => !failures.has(block))',
        'blocks',
      ],
    ],
  ),
  ...mutantsOf(
    QUEUE,
    'coordinator/src/run/queue/free-blocks.ts',
    ['coordinator/test/free-blocks'],
    [
      [
        'blocks that were given are free no more',
        'for (const place of [...given, ...this.#placesOf(freed)])',
        'for (const place of this.#placesOf(freed))',
      ],
      [
        'blocks that come back are not free',
        'for (const place of [...given, ...this.#placesOf(freed)])',
        'for (const place of given)',
      ],
      ['a change that nobody told is not noticed', 'this.#unknownOf(now) === this.#unknown', 'true'],
      ['all blocks are looked at each time', 'if (isKnown && this.#unknownOf(now) === this.#unknown) return', ''],
    ],
  ),
  ...mutantsOf(
    QUEUE,
    'coordinator/src/run/queue/quarantine.ts',
    ['coordinator/test/run-data-parts'],
    [
      [
        "one member's late rounds make blocks suspected",
        '(first !== undefined && first !== member)',
        'first !== undefined',
      ],
    ],
  ),
  ...mutantsOf(
    QUEUE,
    'volunteer/src/async/round-cut.ts',
    ['volunteer/test/round-cut'],
    [
      ['a round that is due goes on', 'this.#isDue = true', ''],
      ['a round is cut before it has learned anything', 'if (this.#isDue && this.#hasLearned)', 'if (this.#isDue)'],
      ['a round without data keeps its lease', 'if (isLoading()) cut()', ''],
      ['a slow round is given up', 'if (isLoading()) cut()', 'cut()'],
    ],
  ),
  ...mutantsOf(
    QUEUE,
    'volunteer/src/local/local-round.ts',
    ['volunteer/test/local-round'],
    [
      ['a device waits for data', 'void this.#parts.batches.ahead(next)', ''],
      [
        'data that came too late is computed',
        'if (isOver(order)) return undefined // the device has other work by now',
        '',
      ],
    ],
  ),
  ...mutantsOf(
    QUEUE,
    'coordinator/src/run/groups/group-rounds.ts',
    ['coordinator/test/run-groups'],
    [
      [
        'rounds that were cut make no version due',
        'return lease !== undefined && LEASE_FACTOR',
        'return lease === undefined && LEASE_FACTOR',
      ],
    ],
  ),
  ...mutantsOf(
    QUEUE,
    'protocol/src/order.ts',
    ['protocol/test/order', 'coordinator/test/run-groups'],
    [
      ['shards come in another order in each epoch', 'epochOrder(seed, 0, Math', 'epochOrder(seed, epoch, Math'],
      ['the blocks of a shard are not shuffled', 'shuffle(own, random)', ''],
    ],
  ),
  ...mutantsOf(
    QUEUE,
    'coordinator/src/run/async/leases.ts',
    ['coordinator/test/run-async', 'coordinator/test/run-off-ring'],
    [
      [
        'A2: a push of another mode epoch is taken',
        "if (push.modeEpoch !== state.modeEpoch) return { verdict: 'mode-stale'",
        "if (false) return { verdict: 'mode-stale'",
      ],
      ['A2: a block counts twice', 'state.chain.isDone(block) || state.open.blocks.has(block))', 'false)'],
      [
        'A2: a lease that another member has is as good',
        'held.holder === holder && held.leaseEpoch',
        'held.leaseEpoch',
      ],
      [
        'A2: an older lease of the same block is as good',
        'held.holder === holder && held.leaseEpoch === leaseEpoch',
        'held.holder === holder',
      ],
      [
        'a lease that ran out stays with its member',
        'expire(transition, block, holder, tried.get(holder)?.has(block) === true)',
        'undefined',
      ],
      [
        'blocks of a failed push are leased together',
        "if (failures.has(free[first] ?? ('' as BlockId))) return free.splice(first, 1)",
        'if (failures.size >= 0) return free.splice(0, blocksPerLease(state))',
      ],
      ['a member tries a bad block without a pause', 'now - own.at >= TRY_GAP_MS && ', ''],
    ],
  ),
  ...mutantsOf(
    QUEUE,
    'coordinator/src/run/history/validation.ts',
    ['coordinator/test/run-validation'],
    [
      [
        'a validation result counts from a member without its lease',
        'leases?.get(token.block)?.leaseEpoch !== token.leaseEpoch',
        'leases === undefined',
      ],
      ['the end of the run is not validated', 'if (trainingIsOver(state)) return true', ''],
    ],
  ),
  ...mutantsOf(
    QUEUE,
    'protocol/src/order.ts',
    ['protocol/test/order', 'coordinator/test/run-ring', 'coordinator/test/run-rebalance'],
    [
      ['shares of a step leave a block out', 'counts[i] = (counts[i] ?? 0) + 1', 'counts[i] = counts[i] ?? 0'],
      ['shares that hold more than the plan are a partition', 'return all.length === planned.length &&', 'return'],
    ],
  ),
  ...mutantsOf(
    COMMIT,
    'coordinator/src/run/history/checkpoints.ts',
    ['coordinator/test/run-checkpoints', 'coordinator/test/run-agreement'],
    [
      ['R15: two quick members make a checkpoint before the third is heard', 'if (!isHeard && now', 'if (false && now'],
      ['the last version needs one digest', '(trainingIsOver(state) ? LAST_DIGESTS_MS : DIGESTS_MS)', 'DIGESTS_MS'],
    ],
  ),
  ...mutantsOf(
    MODES,
    'coordinator/src/run/policy/forecast.ts',
    ['coordinator/test/run-forecast'],
    [
      ['a forecast follows what it is compared with', "if (state.phase.type === 'ring') return", ''],
      ['a forecast leaves the exchange out', 'computeMs + (exchange ?? 0)', 'computeMs'],
    ],
  ),
  ...mutantsOf(
    QUEUE,
    'coordinator/src/run/queue/appended.ts',
    ['coordinator/test/run-appended'],
    [
      [
        'members that come later know nothing of appended data',
        'for (const one of transition.state.appended)',
        'for (const one of [] as AppendedShards[])',
      ],
    ],
  ),
  ...mutantsOf(
    QUEUE,
    'coordinator/src/run/ring/weak-scaling.ts',
    ['coordinator/test/run-weak-scaling'],
    [
      ['the learning rate rises without a warm-up', 'before + times / warmup', 'times'],
      ['a restart warms the learning rate up anew', 'chain.record(plannedTo)?.scaling?.scale ?? 1', '1'],
      ['a step has more blocks than a record may', 'Math.min(MOST_BATCH_BLOCKS, batchBlocks', '(batchBlocks'],
    ],
  ),
  ...mutantsOf(
    QUEUE,
    'coordinator/src/run/history/ending.ts',
    ['coordinator/test/run-end'],
    [
      ['R19: what one member measured ends a run', 'one.confirmed && Number', 'Number'],
      [
        'the target of a loss is reached from above',
        'METRICS[metric].falls ? value < than : value > than',
        'value > than',
      ],
      ['the best evaluation is forgotten', 'best.has(one) || all', 'all'],
      ['patience counts unconfirmed evaluations', '(newest.confirmed ? 1 : 0)', '1'],
    ],
  ),
  ...mutantsOf(
    MODES,
    'coordinator/src/run/policy/mode-policy.ts',
    ['coordinator/test/run-mode-policy'],
    [
      [
        'aborts in a row change nothing',
        'health.consecutiveAborts >= timing.abortsBeforeFallback',
        'health.consecutiveAborts > 1e9',
      ],
      ['ballots of the last hour count', 'now - at < MINUTE_MS', 'now - at < 60 * MINUTE_MS'],
      [
        'a job that asks for one mode gets another',
        "if (mode !== 'auto') return { mode,",
        "if (mode === 'local') return { mode,",
      ],
    ],
  ),
  ...mutantsOf(
    MODES,
    'coordinator/src/run/async/async.ts',
    ['coordinator/test/run-async'],
    [
      [
        'A6: the mode epoch stays when the ring comes back',
        "mode: 'ring', modeEpoch: state.modeEpoch + 1",
        "mode: 'ring', modeEpoch: state.modeEpoch",
      ],
      ['A6: the open sum is dropped', '  closeSum(transition)\n  transition.journal', '  transition.journal'],
    ],
  ),
  ...mutantsOf(
    MODES,
    'coordinator/src/run/async/push-norms.ts',
    ['coordinator/test/push-norms', 'coordinator/test/run-off-ring'],
    [
      ['one off-ring member decides what is usual', 'opinions[part].lowerMedian()', 'opinions[part].upperMedian()'],
      [
        'a push that is clipped is remembered as it came',
        'Math.min(norms.gradient, bounds.gradient)',
        'norms.gradient',
      ],
    ],
  ),
  ...mutantsOf(
    MODES,
    'coordinator/src/run/ring/rebalance.ts',
    ['coordinator/test/run-rebalance'],
    [
      ['blocks of others may be released', '&& blocks.every((block) => assigned.includes(block))', ''],
      [
        'a repeated answer moves blocks twice',
        'if (asked === 0 || moving.released.has(from)) return',
        'if (asked === 0) return',
      ],
    ],
  ),
]
