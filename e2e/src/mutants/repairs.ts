// Mutants that take repairs of reproduced attacks and failures back, one at a time. What the other lists break already
// is not here again.
import { type Mutant, mutantsOf } from './mutant.ts'

const ATTACKS = 'attacks'
const RECOVERY = 'takeovers and restarts'
const VOLUNTEERS = 'a volunteer survives'
const OWN = 'a volunteer protects itself'
const BOUNDS = 'bounds'

export const REPAIRS: readonly Mutant[] = [
  // ---- one coordinator, after another ----
  ...mutantsOf(
    RECOVERY,
    'coordinator/src/folder-owner.ts',
    ['coordinator/test/take-over'],
    [['a second start takes a folder that is in use', 'if (lives && !takeOver) {', 'if (false) {']],
  ),
  ...mutantsOf(
    RECOVERY,
    'coordinator/src/jobs/runs.ts',
    ['coordinator/test/take-over'],
    [
      [
        'a damaged job keeps all others from opening',
        "if (isGridError(error) && error.code === 'disk-failed') throw error",
        'throw error',
      ],
    ],
  ),
  ...mutantsOf(
    RECOVERY,
    'coordinator/src/net/server.ts',
    ['coordinator/test/disk-trouble', 'coordinator/test/take-over'],
    [
      [
        'a displaced coordinator answers as if it owned the jobs',
        'if (this.#deposedBy !== undefined && url !== ROUTES.readyz',
        'if (url === undefined && url !== ROUTES.readyz',
      ],
      ['a displaced coordinator keeps its sockets', "this.#parts?.sessions.stop('another coordinator took over')", ''],
      ['a displaced coordinator does not end', 'await this.stop()\n    this.#options.onDeposed?.(', ';('],
    ],
  ),
  ...mutantsOf(
    RECOVERY,
    'coordinator/src/host/run-host.ts',
    ['coordinator/test/disk-trouble'],
    [
      [
        'a push of a coordinator that was displaced is never answered',
        'onAbandoned: ({ context }) => context?.answer(LEAVING),',
        'onAbandoned: () => undefined,',
      ],
    ],
  ),
  ...mutantsOf(
    RECOVERY,
    'coordinator/src/run/history/checkpoints.ts',
    ['coordinator/test/run-checkpoints'],
    [
      [
        'a checkpoint is asked for again while its upload is under way',
        'if (asked !== undefined && isUnderWay(transition, asked)) return',
        '',
      ],
      [
        'an upload may take no longer than that of a small model',
        'return Math.min(Math.max(config.timing.uploadMs, expected),',
        'return Math.min(config.timing.uploadMs,',
      ],
      [
        'an upload that broke off is waited for',
        'if (asked?.uploader === member && asked.v === version.v) asked.failed = true',
        '',
      ],
    ],
  ),
  ...mutantsOf(
    RECOVERY,
    'coordinator/src/run/history/digests.ts',
    ['coordinator/test/run-checkpoints'],
    [['digests of the version before are forgotten', 'const VERSIONS_REMEMBERED = 4', 'const VERSIONS_REMEMBERED = 1']],
  ),
  ...mutantsOf(
    RECOVERY,
    'coordinator/src/run/ballot/ballot-pace.ts',
    ['coordinator/test/run-ballot-pace'],
    [
      [
        'attempts that fail wait no longer each time',
        'const afterTrouble = troubles < 2 ? 0 :',
        'const afterTrouble = troubles >= 0 ? 0 :',
      ],
      ['ballots in bunches do not wait', 'const inCrowd = crowd < 0 ? 0 :', 'const inCrowd = crowd < 1e9 ? 0 :'],
    ],
  ),
  ...mutantsOf(
    RECOVERY,
    'coordinator/src/net/session.ts',
    ['coordinator/test/several-jobs'],
    [
      ['READY of one job makes a member of another', 'if (ready.job !== this.#offered?.id) return //', '//'],
      [
        'messages of one job reach the run of another',
        'if (this.#run?.job.id !== message.job) return this.#ignoreStale(message)',
        'if (this.#run === undefined) return this.#ignoreStale(message)',
      ],
      [
        'a volunteer that only prepares hears nothing of the end of its run',
        'if (this.#run === undefined && this.#offered?.id === run.job.id) this.#tellEnd(run)',
        '',
      ],
      [
        'READY for a run that ended is not answered',
        'if (run.finished) return this.#tellEnd(run)',
        'if (run.finished) return',
      ],
    ],
  ),
  ...mutantsOf(
    RECOVERY,
    'coordinator/src/net/sessions.ts',
    ['coordinator/test/identity'],
    [
      [
        'the token before is gone as soon as a WELCOME left, which may be lost',
        'used: before?.used,',
        'used: void (before?.used && this.#byTokenHash.delete(before.used)),',
      ],
    ],
  ),
  ...mutantsOf(
    RECOVERY,
    'coordinator/src/run/ballot/dispute.ts',
    ['coordinator/test/one-voice', 'coordinator/test/run-ring'],
    [
      [
        'a second disputed step overwrites the first dispute',
        'if (disputed.now !== undefined && disputed.now.v < record.v) return',
        '',
      ],
    ],
  ),
  ...mutantsOf(
    RECOVERY,
    'coordinator/src/parameter-server/shard-pool.ts',
    ['coordinator/test/parameter-server', 'coordinator/test/a-hung-thread'],
    [['a thread that hangs is waited for', 'this.#time.answerMs', '1e9']],
  ),
  ...mutantsOf(
    RECOVERY,
    'coordinator/src/run/queue/quarantine.ts',
    ['coordinator/test/run-quarantine', 'coordinator/test/run-async', 'coordinator/test/run-suspects'],
    [
      [
        'blocks that members cannot read are not looked at',
        "transition.effect({ type: 'check-blocks', blocks: open })\n  planAnew",
        'planAnew',
      ],
      ['one member sets a block aside', 'const ACCUSERS = 3', 'const ACCUSERS = 1'],
      [
        'two members that fail once each set a block aside',
        '(by.get(id)?.times ?? 0) < TRIES',
        '(by.get(id)?.times ?? 0) < 1',
      ],
      [
        'a ring goes on with a plan that names blocks that are set aside',
        'if (isPlanned) transition.enqueue(',
        'if (false) transition.enqueue(',
      ],
      [
        'a run of which most is set aside ends as if it were trained',
        'isMostlySetAside(state, epoch)) return undefined',
        'isMostlySetAside(state, epoch) || epoch >= 0) return undefined',
      ],
      [
        'a file that is whole again stays set aside',
        "if (blocks.length > 0) transition.journal({ type: 'restored', blocks })",
        '',
      ],
      [
        'a volunteer that comes later does not try what few set aside',
        'else if (workers.some((id) => !by.has(id))) comeBack(transition, block, by)',
        '',
      ],
    ],
  ),
  ...mutantsOf(
    RECOVERY,
    'coordinator/src/run/queue/suspects.ts',
    ['coordinator/test/run-suspects'],
    [
      ['a forced ring repeats a step that always fails', 'for (const block of common) slice.alone.add(block)', ''],
      [
        'local rounds repeat a round that always fails',
        "if (config.mode === 'auto' || config.mode === 'async' || why",
        "if (config.mode !== 'ring' || why",
      ],
      [
        'all blocks fail, and are set aside one by one',
        'if (!isSound && 2 * state.chain.doneIn(currentEpoch(state)) < blocksIn(state, currentEpoch(state))) return',
        '',
      ],
    ],
  ),
  ...mutantsOf(
    RECOVERY,
    'coordinator/src/run/ring/form-deadlines.ts',
    ['coordinator/test/run-form-deadlines', 'coordinator/test/run-admissions'],
    [
      [
        'a mute member holds the first ballot up for half a minute',
        'return waitedMs >= othersMs(state, phase) ?',
        'return waitedMs >= 1e9 ?',
      ],
      [
        'one that waits for its link to a late neighbour is left out',
        'return !late.some((other) => other !== id && areLinked(phase, id, other))',
        'return true',
      ],
      [
        'a newcomer that proved itself and is mute holds a ring up for half a minute',
        'return areNewcomers ? Math.min(formMs, newcomerMs) : formMs',
        'return formMs',
      ],
    ],
  ),
  ...mutantsOf(
    RECOVERY,
    'coordinator/src/run/ballot/unreached.ts',
    ['coordinator/test/run-unreached'],
    [
      [
        'a source that no member reaches is asked for ever',
        'return holders.length > 0 && holders.every(',
        'return holders.length > 1e9 && holders.every(',
      ],
      [
        'a version that no member can fetch never counts as gone',
        'return failed !== undefined && failed.times >= BEFORE_GONE',
        'return failed !== undefined && failed.times >= 1e9',
      ],
    ],
  ),
  ...mutantsOf(
    RECOVERY,
    'coordinator/src/run/ring/ring.ts',
    ['coordinator/test/run-ring'],
    [
      [
        'a commit is told again at each look at a slow step',
        'phase.ackedTo = head.v\n    transition.broadcast(',
        'transition.broadcast(',
      ],
    ],
  ),

  // ---- nothing that fails once ends a volunteer ----
  ...mutantsOf(
    VOLUNTEERS,
    'volunteer/src/coordinator-http.ts',
    ['volunteer/test/coordinator-http'],
    [
      [
        'a request that fails is not repeated',
        'worthIt: (error) => error instanceof Transient,',
        'worthIt: () => false,',
      ],
      [
        'one request may end a volunteer',
        "code !== '' && !isFatalCode(code) ? code : 'coordinator-lost'",
        "code !== '' ? code : 'coordinator-lost'",
      ],
      [
        'an answer that stops in the middle is waited for',
        'within(reader.read(), this.#times.silenceMs, this.#clock)',
        'reader.read()',
      ],
      [
        'an answer may trickle for ever',
        'if (length <= maxBytes && moves(length)) continue',
        'if (length <= maxBytes) continue',
      ],
    ],
  ),
  ...mutantsOf(
    VOLUNTEERS,
    'volunteer/src/async/validation.ts',
    ['volunteer/test/validation.test'],
    [
      ['blocks that cannot be validated are kept', 'giveBack(left, error, parts.send)', 'void left'],
      [
        'a damaged shard costs all blocks of a validation',
        'if (!isOfTheBlock(error)) throw error\n    giveBack',
        'throw error\n    giveBack',
      ],
    ],
  ),
  ...mutantsOf(
    VOLUNTEERS,
    'volunteer/src/preparation.ts',
    ['e2e/test/one-preparation', 'e2e/test/what-ends-a-volunteer'],
    [
      [
        'two preparations overlap',
        'const preparing = this.#idle.then(() =>',
        'const preparing = Promise.resolve().then(() =>',
      ],
    ],
  ),
  ...mutantsOf(
    VOLUNTEERS,
    'volunteer/src/volunteer.ts',
    ['e2e/test/what-ends-a-volunteer', 'e2e/test/a-session-that-ended', 'e2e/test/goes-on-to-the-next-job'],
    [
      [
        'what fails in a session ends the volunteer',
        'if (isFatal(error)) return this.#giveUp(error)',
        'return this.#giveUp(error)',
      ],
      [
        'the end of a run ends every volunteer',
        'if (this.#once && this.#jobs.has(job)) {',
        'if (this.#jobs.has(job)) {',
      ],
    ],
  ),
  ...mutantsOf(
    VOLUNTEERS,
    'volunteer/src/job-session.ts',
    ['e2e/test/a-session-that-ended'],
    [
      [
        'a session that ended says something before READY',
        'if (!this.#isStopped) this.#parts.send(message)',
        'this.#parts.send(message)',
      ],
    ],
  ),
  ...mutantsOf(
    VOLUNTEERS,
    'volunteer/src/generation/assignment-work.ts',
    ['volunteer/test/ring-gradients', 'volunteer/test/assignment-work'],
    [
      [
        'an assignment goes on after the ballot that came while it fetched samples',
        'if (this.#lease.isOver) return // a ballot came while the samples were fetched',
        '',
      ],
      [
        'buckets of an older assignment leave',
        'if (range === undefined || this.#lease.isOver) return',
        'if (range === undefined) return',
      ],
    ],
  ),
  ...mutantsOf(
    VOLUNTEERS,
    'volunteer/src/coordinator-link.ts',
    ['volunteer/test/coordinator-link'],
    [['each reconnect leaves a listener behind', "signal.removeEventListener('abort', onAbort) //", '//']],
  ),
  ...mutantsOf(
    VOLUNTEERS,
    'volunteer/src/link/link-set.ts',
    ['volunteer/test/link-set'],
    [
      [
        'each link that never came leaves a closure behind',
        'this.#changed(member, ({ arrivals }) => void arrivals.delete(onLink))',
        '',
      ],
    ],
  ),

  // ---- strangers ----
  ...mutantsOf(
    ATTACKS,
    'coordinator/src/api/routes.ts',
    ['coordinator/test/before-the-body'],
    [['the body of a request to nowhere is read', 'if (request.is404) refuse(', 'if (false) refuse(']],
  ),
  ...mutantsOf(
    ATTACKS,
    'coordinator/src/clock.ts',
    ['coordinator/test/before-the-body'],
    [
      [
        'a stall of the coordinator is silence of its members',
        'Math.min(performance.now() - turnedAt, LONGEST_TURN_MS)',
        '(performance.now() - turnedAt)',
      ],
    ],
  ),
  ...mutantsOf(
    ATTACKS,
    'coordinator/src/api/guesses.ts',
    ['coordinator/test/who-may-read'],
    [['tokens may be guessed at any rate', 'if (waitMs <= 0) return', 'return']],
  ),
  ...mutantsOf(
    ATTACKS,
    'coordinator/src/api/access.ts',
    ['coordinator/test/who-may-read'],
    [
      [
        'strangers read private jobs',
        "if (run !== undefined && reader !== 'stranger') return { run, reader }",
        'if (run !== undefined) return { run, reader }',
      ],
      [
        'a member reads every job',
        'this.#parts.sessions.takesPart(member, run.job.id)\n    return takesPart',
        'run.job.id.length > 0\n    return takesPart',
      ],
      [
        'anyone reads the shards of private jobs',
        "if (jobs.some((run) => this.readerOf(request, run) !== 'stranger')) return 'private'",
        "if (jobs.length > 0) return 'private'",
      ],
    ],
  ),
  ...mutantsOf(
    ATTACKS,
    'coordinator/src/host/kept-files.ts',
    ['coordinator/test/who-may-read'],
    [['each reader has an export encoded anew', 'if (existing !== undefined) return existing', '']],
  ),
  ...mutantsOf(
    ATTACKS,
    'coordinator/src/api/downloads.ts',
    ['coordinator/test/who-may-read', 'coordinator/test/downloads'],
    [
      [
        'HEAD encodes an export',
        "if (method === 'HEAD') return (bytes === undefined ? reply",
        "if (method === 'NONE') return (bytes === undefined ? reply",
      ],
    ],
  ),
  ...mutantsOf(
    ATTACKS,
    'coordinator/src/api/connections.ts',
    ['coordinator/test/bounded-connections', 'coordinator/test/slow-bodies'],
    [
      [
        'one address may open any number of connections',
        'if (open.of(address) >= limits.perAddress &&',
        'if (open.of(address) >= 1e9 &&',
      ],
      [
        'a reader that does not read is served for ever',
        'if (isOwed && bytes - before.bytes < (slowest * took) / 1000) socket.destroy()',
        '',
      ],
      [
        'bodies on their way may take any memory',
        'if (onTheirWay > 0 && onTheirWay + bytes > bodyBytes)',
        'if (onTheirWay > 1e15)',
      ],
    ],
  ),
  ...mutantsOf(
    ATTACKS,
    'coordinator/src/net/hello-proof.ts',
    ['coordinator/test/identity'],
    [
      ['any signature proves a key', 'return key !== undefined && verify(', 'return key !== undefined || verify('],
      ['any key proves an id', 'if (incarnation !== incarnationOf(publicKey, salt))', 'if (salt === undefined)'],
      [
        'a proof made for another coordinator counts',
        'if (!names.includes(coordinator))',
        'if (coordinator === undefined)',
      ],
    ],
  ),
  ...mutantsOf(
    ATTACKS,
    'client-node/src/signer.ts',
    ['coordinator/test/identity'],
    [
      [
        "a volunteer's key is readable by all users of its machine",
        'const FILE_MODE = 0o600',
        'const FILE_MODE = 0o644',
      ],
    ],
  ),
  ...mutantsOf(
    VOLUNTEERS,
    'coordinator/src/run/links/generation-links.ts',
    ['coordinator/test/run-links'],
    [
      [
        'whoever was left out for a member that reaches nobody stays out',
        'excludedOver === cause &&',
        'excludedOver === undefined &&',
      ],
      [
        'a member whose links with a third are dead comes back',
        "other !== cause && linkBetween(transition, id, other) === 'dead')",
        "other === cause && linkBetween(transition, id, other) === 'good')",
      ],
      [
        'links with members that are out of the ring say nothing of a member',
        'judge, [...transition.state.members.keys()])',
        'judge, willing)',
      ],
    ],
  ),
  ...mutantsOf(
    ATTACKS,
    'coordinator/src/run/links/link-health.ts',
    ['coordinator/test/run-links', 'coordinator/test/run-stalls'],
    [
      [
        'two accusers put an honest member out',
        'accusers >= Math.max(2, Math.min(SEVERAL_ACCUSERS, others.length))',
        'accusers >= 2',
      ],
      [
        'accusers of one network are many voices',
        'new Set(accusers.map((id) => (networkOf(id) === own ? id : (networkOf(id) ?? id)))).size',
        'accusers.length + 0 * String(own).length',
      ],
      [
        'one ballot is enough to put a member out',
        'isBelieved && new Set(breaks.map(({ generation }) => generation)).size > 1 ?',
        'isBelieved ?',
      ],
    ],
  ),
  ...mutantsOf(
    ATTACKS,
    'coordinator/src/run/ballot/handover.ts',
    ['coordinator/test/run-agreement'],
    [
      [
        "one member's upload becomes the state of the parameter server",
        'if (isOneState && (votes.size > 1 || isAlone(state)))',
        'if (isOneState)',
      ],
      [
        'a version with one holder is handed over at once',
        'if (holders.length === 1 && !isAlone(state)) return withoutSecond(transition)',
        '',
      ],
    ],
  ),
  ...mutantsOf(
    ATTACKS,
    'coordinator/src/run/history/checkpoints.ts',
    ['coordinator/test/run-agreement', 'coordinator/test/run-checkpoints'],
    [
      [
        'a false digest stops every checkpoint',
        'if (digest === upload.blob) accept(transition,',
        'if (false) accept(transition,',
      ],
      ['a member with a false digest is not left out', 'differed(transition, few, { what, leaveOut: true })', ''],
    ],
  ),
  ...mutantsOf(
    ATTACKS,
    'coordinator/src/run/ring/stalls.ts',
    ['coordinator/test/run-stalls', 'coordinator/test/run-ring'],
    [
      [
        'a member that computes while all others wait is never named',
        'if (isJudged && late.length > 0) return leaveOut(',
        'if (false) return leaveOut(',
      ],
      [
        'a member that does not answer is not left out',
        'if (mute.size > 0) return leaveOut(',
        'if (false) return leaveOut(',
      ],
      ['a member that claims next to no speed may be silent for ever', 'Math.min(claimedMs, longestMs)', 'claimedMs'],
      [
        'no member is asked who holds a step up',
        'if (now < (inquiry?.nextAt ?? phase.progressAt + contributeMs(state, phase))) return',
        'return',
      ],
    ],
  ),
  ...mutantsOf(
    ATTACKS,
    'coordinator/src/run/async/leases.ts',
    ['coordinator/test/run-async.test'],
    [
      [
        'pushes of zeros are work',
        'if (input.norms?.gradient === 0 && push.targets > 0) return noWork(transition, push)',
        '',
      ],
      [
        'a member whose pushes are refused goes on',
        'if (member.refusedPushes >= REFUSED_FOR_THE_END) {',
        'if (member.refusedPushes >= 1e9) {',
      ],
    ],
  ),

  ...mutantsOf(
    ATTACKS,
    'coordinator/src/run/ring/inert.ts',
    ['e2e/test/a-mute-volunteer', 'coordinator/test/run-inert'],
    [
      ['members that do nothing keep others out of their job', 'now - workedAt > limitMs &&', 'false &&'],
      [
        'a member of a ring whose steps are slow loses its place',
        "if (phase.type === 'ring') for (const id of phase.members) busy.add(id)",
        '',
      ],
      [
        'volunteers that waited for the run to start lose their places when it does',
        "if (state.phase.type === 'waiting') for (const member",
        'if (now < 0) for (const member',
      ],
    ],
  ),

  // ---- what a volunteer refuses ----
  ...mutantsOf(
    OWN,
    'volunteer/src/coordinator-http.ts',
    ['coordinator/test/volunteers-protect', 'volunteer/test/coordinator-http'],
    [
      [
        'an answer is read whatever its size',
        'if (length > maxBytes) throw tooLarge(path, length, maxBytes)',
        'if (length > 1e12) throw tooLarge(path, length, maxBytes)',
      ],
      ['an answer that is encoded is expanded', "if (encoding !== 'identity')", "if (encoding === 'none')"],
      ['a redirect is followed', "redirect: 'manual' })", "redirect: 'follow' })"],
    ],
  ),
  ...mutantsOf(
    OWN,
    'volunteer/src/link/candidate-gate.ts',
    ['volunteer/test/candidate-gate'],
    [
      [
        "addresses of the volunteer's own network are tried",
        '(isGlobal(address) || (local && isAddress(address)) ||',
        '(isAddress(address) ||',
      ],
      ['any number of candidates is tried', '&& ++this.#taken <= MAX_CANDIDATES', ''],
      [
        'any STUN and TURN server is asked',
        'return servers.filter(({ urls }) => hosts.has(iceHostOf(urls)))',
        'return [...servers]',
      ],
    ],
  ),
  ...mutantsOf(
    OWN,
    'volunteer/src/link/signal-gate.ts',
    ['volunteer/test/rtc-link'],
    [
      [
        'offers of members outside the generation reach WebRTC',
        'if (this.#expected.has(src)) return true',
        'return true',
      ],
      [
        'a member that is dialled may offer',
        'if (this.#dialled.has(src) && !ASKING.has(type)) return true',
        'if (this.#dialled.has(src)) return true',
      ],
    ],
  ),
  ...mutantsOf(
    OWN,
    'volunteer/src/link/flight-window.ts',
    ['volunteer/test/flight-window', 'volunteer/test/rtc-link'],
    [
      ['a receipt may name more than was sent', 'if (bytes > this.underWay)', 'if (bytes > COUNTER)'],
      ['a link sends its whole window after a rest', 'Math.min(this.#allowed, this.#bytes)', 'this.#bytes'],
      ['a link never sends more than at its begin', 'const GAIN = 1.5', 'const GAIN = 0'],
      [
        'a link that rests forgets its line',
        'if (isLast || rate > Math.max(...this.#rates))',
        'if (isLast || rate > 0)',
      ],
      [
        'a line that became slower is sent as much as before',
        'if (this.#rates.length > ROUNDS) this.#rates.shift()',
        '',
      ],
      ['a window leaves its last frame out', 'carried - crossing', 'carried'],
      ['a network of its own has the window of a long line', 'this.#isNear || this.isShared', 'this.isShared'],
    ],
  ),
  ...mutantsOf(
    OWN,
    'volunteer/src/link/rtc-subflow.ts',
    ['volunteer/test/rtc-link', 'volunteer/test/subflows'],
    [
      ['a connection that waits is not told of room', 'this.link.drained()', ''],
      ['who waits for frames that were out of order hears nothing', ' || frames > 1', ''],
    ],
  ),
  ...mutantsOf(
    OWN,
    'volunteer/src/link/frame-order.ts',
    ['volunteer/test/frame-order', 'volunteer/test/subflows'],
    [
      ['frames are handed on as they come', 'if (number !== this.#next) return', 'if (number < 0) return'],
      ['frames without end wait for an earlier one', 'if (this.#aheadBytes > MOST_AHEAD_BYTES)', 'if (false)'],
      ['a number counts twice', 'isFar || this.#ahead.has(number)', 'isFar'],
    ],
  ),
  ...mutantsOf(
    OWN,
    'volunteer/src/link/subflows.ts',
    ['volunteer/test/subflows', 'volunteer/test/rtc-link'],
    [
      ['a link is not told of room', 'this.link.drained()\n  }\n\n  async', '}\n\n  async'],
      ['frames leave that the receiver has no room for', 'this.#all.length > 1 && this.#cost >', 'this.#cost > 1e9 +'],
      ['all frames take the first connection', 'a.flight.underWay - b.flight.underWay', '0'],
      ['connections without end join a link', 'if (this.#all.length >= MOST_SUBFLOWS) return false', ''],
    ],
  ),
  ...mutantsOf(
    OWN,
    'volunteer/src/link/rtc-links.ts',
    ['volunteer/test/rtc-link'],
    [['a member joins the link of another', ' && one.link.peer === peer', '']],
  ),
  ...mutantsOf(
    OWN,
    'volunteer/src/link/further-subflows.ts',
    ['volunteer/test/further-subflows'],
    [
      ['a full line gets further connections', ' && sample.ms < QUEUED * this.#shortestMs', ''],
      ['a line that carries all frames gets further connections', 'framesHeld > HELD_FRAMES && ', ''],
      ['a network of its own gets further connections', ' || this.#shortestMs < NEAR_MS', ''],
      ['a line that is full for moments gets further connections', '< ROUNDS * this.#shortestMs', '< 0'],
    ],
  ),
  ...mutantsOf(
    OWN,
    'client-node/src/webrtc.ts',
    ['client-node/test/webrtc'],
    [
      ['a stranger may send sound and pictures', 'refuseMedia(sdp)\n', '\n'],
      ['a listener that throws ends the process', 'Object.assign(prototype, { dispatchEvent: tellAll })', '{}'],
    ],
  ),
  ...mutantsOf(
    OWN,
    'volunteer/src/own-limits.ts',
    ['volunteer/test/own-limits'],
    [
      [
        'a job takes more memory than its owner allows',
        "if (min > memoryBytes) throw overLimit('memory', min, memoryBytes, 'at least ')",
        '',
      ],
      ['a block takes any amount of work', 'if (flops <= blockFlops) return', 'return'],
    ],
  ),
  ...mutantsOf(
    OWN,
    'volunteer/src/upload-budget.ts',
    ['volunteer/test/own-limits'],
    [
      ['bytes leave beyond the limit of the hour', 'if (sent > this.#perHour) {', 'if (sent > 1e18) {'],
      ['a restart forgets what was sent', 'this.#others = (texts ?? []).map(sentIn)', ''],
    ],
  ),
  ...mutantsOf(
    OWN,
    'volunteer/src/graph/plan.ts',
    ['volunteer/test/own-limits'],
    [
      [
        'one dispatch may keep a GPU busy for any time',
        'export const MAX_WORK = 2 ** 36',
        'export const MAX_WORK = 2 ** 50',
      ],
    ],
  ),
  ...mutantsOf(
    OWN,
    'client-node/src/shard-cache.ts',
    ['client-node/test/shard-cache'],
    [['a cache fills the disk', 'if (unmeasured < MEASURE_AFTER * maxBytes) return', 'return']],
  ),
  ...mutantsOf(
    OWN,
    'protocol/src/plain-text.ts',
    ['coordinator/test/volunteers-protect', 'coordinator/test/refuses-strangers'],
    [['control characters reach terminals', ".replaceAll(UNPRINTABLE, '')", '']],
  ),

  // ---- bounds ----
  ...mutantsOf(
    BOUNDS,
    'protocol/src/schema.ts',
    ['protocol/test/hostile-input'],
    [['a block has several names', '/^(0|[1-9][0-9]{0,8}|v):(0|[1-9][0-9]{0,8})$/', '/^([0-9]{1,9}|v):([0-9]{1,9})$/']],
  ),
  ...mutantsOf(
    BOUNDS,
    'coordinator/src/host/honest-counts.ts',
    ['coordinator/test/hostile-messages', 'coordinator/test/refuses-strangers', 'coordinator/test/hostile-sessions'],
    [
      [
        'claims of any counts are believed',
        "if (message.type === 'state') for (const record of message.claim?.records ?? [])",
        'for (const record of [] as (typeof message.claim.records)[number][])',
      ],
    ],
  ),
  ...mutantsOf(
    BOUNDS,
    'coordinator/src/host/journal-rate.ts',
    ['coordinator/test/journal-rate'],
    [['one member may fill the journal', 'return counted === 0 || this.#bucketOf(member).pay(counted)', 'return true']],
  ),
  ...mutantsOf(
    BOUNDS,
    'coordinator/src/api/pushes.ts',
    ['coordinator/test/places'],
    [
      [
        'the body of a push without a lease is read',
        "if ('verdict' in push)\n          return reply",
        'if (false)\n          return reply',
      ],
      ['a member pushes any number of gradients at once', 'seats.take(member, reply)\n        announced', 'announced'],
    ],
  ),
  ...mutantsOf(
    BOUNDS,
    'coordinator/src/host/push-body.ts',
    ['coordinator/test/large-bodies'],
    [
      [
        'a push is read in one go',
        'return inTurns(readingBody(body, shape), clock)',
        'return inTurns(readingBody(body, shape), { sleep: () => Promise.resolve() })',
      ],
    ],
  ),
  ...mutantsOf(
    BOUNDS,
    'coordinator/src/net/session.ts',
    ['coordinator/test/bounded-connections', 'coordinator/test/hostile-sessions', 'coordinator/test/places'],
    [
      ['large legal messages hold the event loop', 'if (!this.#bytes.pay(data.byteLength)) {', 'if (false) {'],
      [
        'a volunteer may prepare for ever',
        'if (this.#run === undefined && this.#offered !== undefined && at - this.#offeredAt > READY_MS)',
        'if (this.#run === undefined && at < 0)',
      ],
    ],
  ),
  ...mutantsOf(
    BOUNDS,
    'coordinator/src/net/sessions.ts',
    ['coordinator/test/places', 'coordinator/test/bounds'],
    [['one address takes every place', 'if (this.#here(session.address) >= MAX_PER_ADDRESS) {', 'if (false) {']],
  ),
  ...mutantsOf(
    BOUNDS,
    'coordinator/src/api/watch.ts',
    ['coordinator/test/who-may-read'],
    [
      [
        'strangers of one address take every place of the stream',
        'strangers.length < MAX_WATCHERS && neighbours.length < MAX_WATCHERS_PER_ADDRESS',
        'strangers.length < MAX_WATCHERS',
      ],
      [
        'strangers who take every place lock the owner out',
        "return unproven.length < MAX_UNPROVEN ? 'unproven' : 'none'",
        "return 'none'",
      ],
      ['a page may say any number of things', 'if (watcher.spoke || isBinary ||', 'if (isBinary ||'],
    ],
  ),
  ...mutantsOf(
    BOUNDS,
    'coordinator/src/net/server.ts',
    ['coordinator/test/bounded-connections'],
    [
      [
        'what stands in front of a proxy counts as the proxy',
        'trustProxy: trustedProxies.length > 0 ? [...trustedProxies] : false,',
        'trustProxy: false,',
      ],
    ],
  ),
  ...mutantsOf(
    BOUNDS,
    'coordinator/src/datasets/data-root.ts',
    ['coordinator/test/data-root'],
    [
      [
        'a job reads any file of the machine',
        "return isAbsolute(way) || way.split(/[/\\\\]/)[0] === '..' ? undefined : real",
        'return real',
      ],
    ],
  ),
  ...mutantsOf(
    BOUNDS,
    'coordinator/src/own-modes.ts',
    ['coordinator/test/command-line', 'coordinator/test/data-root', 'coordinator/test/bounds'],
    [['a data folder that others may read stays so', 'if ((mode & OTHERS) === 0) return false', 'return false']],
  ),
]
