// Mutants of the coordinator's shells: journal, outbox, sessions, parameter server, relay, signalling, guards.
import { type Mutant, mutantsOf } from './mutant.ts'

const JOURNAL = 'journal'
const OWNERS = 'owners'
const SHELLS = 'shells'
const SERVER = 'parameter server'
const RELAY = 'relay'
const SIGNALLING = 'signalling'
const GUARDS = 'guards'

export const SERVER_SIDE: readonly Mutant[] = [
  ...mutantsOf(
    'audit',
    'coordinator/src/audit/step-sums.ts',
    ['coordinator/test/step-sums'],
    [
      ['sums are taken whatever the records say', 'record.gradDigest === digests[i]', 'digests[i] !== undefined'],
      ['more sums are asked for than members keep', 'if (steps.length > this.most) return undefined', ''],
      ['any member may send the sums that another was asked for', 'one.member === member && ', ''],
    ],
  ),
  ...mutantsOf(
    GUARDS,
    'coordinator/src/jobs/state-memory.ts',
    ['coordinator/test/model-size'],
    [
      ['a state larger than the memory is taken', 'Math.floor(machineBytes / STATES_HELD)', 'Infinity'],
      ['a state longer than frames can say is taken', 'Math.min(MAX_STATE_BYTES, ', 'Math.max(MAX_STATE_BYTES, '],
      [
        'a state three times as large as it may be is taken',
        'if (bytes <= most) return',
        'if (bytes <= 3 * most) return',
      ],
    ],
  ),
  ...mutantsOf(
    JOURNAL,
    'coordinator/src/journal/fence.ts',
    ['coordinator/test/journal.test'],
    [
      ['an older coordinator writes', 'if (own === fence) return', 'return'],
      ['two coordinators take over with one number', 'Math.max(fence + 1,', 'Math.max(fence,'],
    ],
  ),
  ...mutantsOf(
    OWNERS,
    'coordinator/src/owners/who-owns.ts',
    ['coordinator/test/who-owns'],
    [
      ['R2-owner: a job is taken from an owner that lives', 'owner === undefined || !live.has(owner)', 'true'],
      ['jobs go to a coordinator that ends', 'isLive && takesJobs', 'isLive'],
      ['one coordinator gets all jobs of another', 'taker.openJobs++', ''],
      ['a job goes to and fro between two', 'const UNEVEN = 2', 'const UNEVEN = 0'],
      ['one that ends keeps its jobs', 'isLive && id !== self', 'isLive'],
    ],
  ),
  ...mutantsOf(
    OWNERS,
    'coordinator/src/journal/memory.ts',
    ['coordinator/test/owner-book.test'],
    [
      [
        'R2-owner: two take one job at once',
        'journal === undefined || journal.owner !== from',
        'journal === undefined',
      ],
      ['two change shared blobs at once', 'requireTurn(!isBusy)', ''],
    ],
  ),
  ...mutantsOf(
    JOURNAL,
    'coordinator/src/journal/sqlite.ts',
    ['coordinator/test/journal.test'],
    [
      ['rows come back in any order', 'WHERE id = ?) ORDER BY number', 'WHERE id = ?) ORDER BY number DESC'],
      ['a power cut loses what was acknowledged', "'synchronous = FULL'", "'synchronous = OFF'"],
      [
        'a take-over reads before it raises the fence',
        'database.exec(begin)\n      const result = work()',
        'const result = work()\n      database.exec(begin)',
      ],
      [
        'half an append stays',
        "if (database.inTransaction) database.exec('ROLLBACK')",
        "if (database.inTransaction) database.exec('COMMIT')",
      ],
    ],
  ),
  ...mutantsOf(
    JOURNAL,
    'coordinator/src/run/journal-replay.ts',
    ['coordinator/test/run-ballot', 'coordinator/test/run-async', 'coordinator/test/run-checkpoints'],
    [
      ['a ballot is forgotten', 'state.generation = entry.generation\n', '\n'],
      ['a block that was set aside comes back', 'state.quarantined.add(entry.block)', ''],
      [
        'a rewind keeps newer checkpoints',
        'while (newestCheckpoint(state).version.v > to.v) state.checkpoints.pop()',
        '',
      ],
      ['lease epochs begin anew', 'state.leasesReserved = entry.reserved', ''],
    ],
  ),
  ...mutantsOf(
    JOURNAL,
    'coordinator/src/run/history/snapshot.ts',
    ['coordinator/test/snapshot'],
    [
      ['a snapshot forgets which blocks are set aside', 'quarantined: [...state.quarantined]', 'quarantined: []'],
      ['a snapshot forgets the branch that a rewind cut off', 'abandoned: state.abandoned', 'abandoned: []'],
      ['a snapshot forgets that the run is over', 'finished: state.finished ?? null', 'finished: null'],
      ['a snapshot that contradicts itself is taken', 'state.chain.read(written.chain)', ''],
    ],
  ),
  ...mutantsOf(
    JOURNAL,
    'coordinator/src/host/run-journal.ts',
    ['coordinator/test/snapshot'],
    [
      [
        'no snapshot is ever written',
        'const snapshot = due ? this.#snapshot(at) : []',
        'const snapshot: JournalRow[] = []',
      ],
      ['a snapshot is made of a history that lacks a row', 'if (!this.#isWhole) return []', ''],
    ],
  ),
  ...mutantsOf(
    JOURNAL,
    'coordinator/src/run/queue/chain-index.ts',
    ['coordinator/test/chain-index'],
    [['records are kept for ever', 'if (count <= 0) return', 'return']],
  ),
  ...mutantsOf(
    SERVER,
    'coordinator/src/parameter-server/norm-clip.ts',
    ['coordinator/test/parameter-server'],
    [
      ['a push moves the parameters as far as it likes', 'return factor < 1 ? factor : 1', 'return 1'],
      [
        'a clipped norm is remembered as it came: a stranger raises the median',
        'this.#remember(Math.min(norm, bound))',
        'this.#remember(norm)',
      ],
      ['the first pushes have no bound', 'if (this.#norms.length < ENOUGH) return this.#first', ''],
      ['zero pushes lower the median', '|| norm === 0) return', ') return'],
    ],
  ),
  ...mutantsOf(
    SERVER,
    'coordinator/src/parameter-server/parameter-server.ts',
    ['coordinator/test/parameter-server', 'coordinator/test/push-memory'],
    [
      ['a stale push counts whole', 'clip.factorOf(norm) * damping', 'clip.factorOf(norm)'],
      ['a version may be made of nothing', '|| running.pushes === 0) throw', ') throw'],
      ['the optimizer goes on from the state before', 'running.current = running.current === 0 ? 1 : 0', ''],
      [
        'a checkpoint remembers norms of pushes that it does not hold',
        'norms: open ? running.normsAtHead : running.clip.norms',
        'norms: running.clip.norms',
      ],
    ],
  ),
  ...mutantsOf(
    SERVER,
    'coordinator/src/parameter-server/parameter-server.ts',
    ['coordinator/test/shard-processes'],
    [
      [
        'shards elsewhere are sent every push as f32',
        'const encoded = pool.take && gradient.encoded',
        'const encoded = undefined',
      ],
    ],
  ),
  ...mutantsOf(
    SERVER,
    'coordinator/src/parameter-server/shard-host.ts',
    ['coordinator/test/shard-processes'],
    [['a shard takes more numbers than were encoded', 'if (skip + vector.length > length)', 'if (skip > length)']],
  ),
  ...mutantsOf(
    SERVER,
    'model/src/encoded-vector.ts',
    ['model/test/encoded-vector', 'coordinator/test/shard-processes'],
    [
      ['a part begins with numbers of others', 'skip: from - first', 'skip: 0'],
      ['a shard is sent runs that its range does not touch', 'RUN * Math.ceil(end / RUN), length)', 'length)'],
    ],
  ),
  ...mutantsOf(
    SERVER,
    'model/src/pushed-gradient.ts',
    ['model/test/pushed-gradient', 'coordinator/test/off-ring-sums'],
    [
      ['a push may hold no numbers', 'requireFinite(run.values)', 'void run'],
      ['squares of two blocks are one sum', 'this.#closed = this.sum\n    this.#lanes.fill(0)', 'this.#lanes.fill(0)'],
      ['statistics count as gradients', '{ ...behind, start: behind.start - trained }', 'behind'],
      ['places behind a border keep their numbers', '.map((place) => place - at)', ''],
    ],
  ),
  ...mutantsOf(
    SERVER,
    'coordinator/src/parameter-server/shard.ts',
    ['coordinator/test/parameter-server'],
    [
      ['a new sum begins with the last', 'if (first) this.#sum.fill(0)', ''],
      [
        'a sum that overflowed moves everything',
        'if (factor === 0) mean.fill(0, 0, this.#trained)',
        'if (factor < 0) mean.fill(0, 0, this.#trained)',
      ],
    ],
  ),
  ...mutantsOf(
    SERVER,
    'coordinator/src/parameter-server/compensate.ts',
    ['coordinator/test/parameter-server'],
    [
      [
        'a late gradient is corrected the wrong way',
        'f32((head[i] ?? 0) - (base[i] ?? 0))',
        'f32((base[i] ?? 0) - (head[i] ?? 0))',
      ],
    ],
  ),
  ...mutantsOf(
    SERVER,
    'coordinator/src/parameter-server/add-push.ts',
    ['coordinator/test/parameter-server', 'coordinator/test/off-ring-sums'],
    [
      [
        'running statistics are clipped with gradients',
        'addWeighed(sum, behind, f32(weights.statistics))',
        'addWeighed(sum, behind, f32(weights.gradient))',
      ],
      ['a new sum begins with the last', 'values.fill(0)', 'values'],
    ],
  ),
  ...mutantsOf(
    SERVER,
    'coordinator/src/parameter-server/ranges.ts',
    ['coordinator/test/parameter-server'],
    [
      [
        'the last range misses an element',
        'Math.min(total, Math.floor((blocks * i) / shards) * BLOCK_ELEMENTS)',
        'Math.min(total - 1, Math.floor((blocks * i) / shards) * BLOCK_ELEMENTS)',
      ],
    ],
  ),
  ...mutantsOf(
    SHELLS,
    'coordinator/src/net/sessions.ts',
    ['coordinator/test/leaves'],
    [
      [
        'a goodbye behind the end of its socket is not taken',
        'else if (job !== undefined) this.#parts.find(job)?.saidGoodbye(member)',
        '',
      ],
    ],
  ),
  ...mutantsOf(
    SHELLS,
    'coordinator/src/host/outbox.ts',
    ['coordinator/test/outbox'],
    [
      [
        'what comes while the outbox comes to rest stays until something else comes',
        'this.#running = undefined // at once: what is added from here on has to begin anew',
        'queueMicrotask(() => {\n        this.#running = undefined\n      })',
      ],
    ],
  ),
  ...mutantsOf(
    SHELLS,
    'coordinator/src/host/outbox.ts',
    ['coordinator/test/disk-trouble'],
    [
      [
        'R1: messages leave before their rows are on disk',
        'if (!(await this.#persistently(() => this.#parts.append(rows)))) return false',
        'void this.#persistently(() => this.#parts.append(rows))',
      ],
      [
        'a deposed coordinator goes on sending',
        "if (isGridError(error) && error.code === 'lease-stale') return this.#deposed(error)",
        '',
      ],
      [
        'who waits is not answered when another coordinator took over',
        'for (const decided of abandoned) this.#parts.onAbandoned(decided)',
        '',
      ],
      ['a disk that failed once is not tried again', 'if (this.#closed) return false', 'return false'],
    ],
  ),
  ...mutantsOf(
    SHELLS,
    'coordinator/src/host/run-host.ts',
    ['coordinator/test/disk-trouble', 'coordinator/test/two-volunteers-train', 'coordinator/test/killed-twice'],
    [['a restart opens no ballot', "this.feed({ type: 'coordinator-started', secret })", '']],
  ),
  ...mutantsOf(
    SHELLS,
    'coordinator/src/token-bucket.ts',
    ['coordinator/test/token-bucket'],
    [['a rate is no limit', 'if (this.#tokens < 1) return false', '']],
  ),
  ...mutantsOf(
    SHELLS,
    'coordinator/src/net/session.ts',
    ['coordinator/test/refuses-strangers', 'coordinator/test/hostile-sessions'],
    [
      ['a session may refuse for ever', 'this.#refused >= MAX_REFUSED ||', ''],
      ['names keep what cannot be seen', 'const name = plainText(hello.name)', 'const name = hello.name'],
    ],
  ),
  ...mutantsOf(
    SHELLS,
    'coordinator/src/net/sessions.ts',
    ['coordinator/test/bounds'],
    [['MAX_VOLUNTEERS is not enforced', '>= MAX_VOLUNTEERS && !this', '>= 1e9 && !this']],
  ),
  ...mutantsOf(
    SHELLS,
    'coordinator/src/api/watch.ts',
    ['coordinator/test/dashboard-stream'],
    [
      [
        'a rewind is not told to pages',
        'const rewoundTo = missed === 0 ? undefined',
        'const rewoundTo = missed >= 0 ? undefined',
      ],
    ],
  ),
  ...mutantsOf(
    SHELLS,
    'coordinator/src/datasets/shards.ts',
    ['coordinator/test/datasets'],
    [
      [
        'labels are those of other samples',
        'Uint8Array.from(rows, (row) => y[row] ?? 0)',
        'Uint8Array.from(rows, (_, i) => y[start + i] ?? 0)',
      ],
    ],
  ),
  ...mutantsOf(
    RELAY,
    'coordinator/src/net/relay.ts',
    ['coordinator/test/relay'],
    [
      ['the rate of an end is no limit', 'if (from.bucket.take()) return', 'if (from.bucket.take() || true) return'],
      ['a quiet link is never closed', 'else if (quiet > quietMs) this.#part', 'else if (quiet > 1e9) this.#part'],
      [
        'an end whose other end lags is read on',
        "if (to.socket.bufferedAmount > MAX_WAITING_BYTES) from.pause('the other end lags')",
        '',
      ],
      [
        'a link that is not to be relayed any more stays',
        'if (!this.#options.mayRelay(end.self, end.peer)) this.#part',
        'if (false) this.#part',
      ],
      ['a member has any number of links', 'length >= MAX_ENDS_PER_MEMBER)', 'length >= 1e9)'],
      [
        'anything goes on, whatever its size',
        'requireFrameSize(data, isBinary)\n      this.#requireQuota',
        'this.#requireQuota',
      ],
    ],
  ),
  ...mutantsOf(
    SIGNALLING,
    'coordinator/src/net/signalling.ts',
    ['coordinator/test/signalling'],
    [
      [
        'an offer tells strangers who is here',
        'if (!allowed) throw',
        'if (!allowed && destination !== undefined) throw',
      ],
      ['a flood is read to its end', "if (error.code === 'rate-exceeded') socket.terminate()", ''],
      ['a replaced socket still speaks', 'if (this.#clients.get(client.id) !== client) return\n', ''],
    ],
  ),
  ...mutantsOf(
    SIGNALLING,
    'coordinator/src/net/signalling-messages.ts',
    ['coordinator/test/signalling'],
    [
      ['a session description may have other sections', 'if (media.length !== 1 ||', 'if ('],
      ['candidates may name any port', 'port >= LOWEST_PORT && port <= 0xffff', 'port <= 0xffff'],
    ],
  ),
  ...mutantsOf(
    GUARDS,
    'coordinator/src/api/guards.ts',
    ['coordinator/test/refuses-strangers'],
    [
      ['any name is our own', '(isIP(name) !== 0 && hosts.some((host) => WILDCARDS.has(host)))', 'true'],
      ['pages of other sites change things', '!sameOrigin(origin, host, names)) throw', 'false) throw'],
    ],
  ),
  ...mutantsOf(
    GUARDS,
    'coordinator/src/access/secrets.ts',
    ['coordinator/test/bounds'],
    [
      [
        'tokens are compared in variable time',
        "return timingSafeEqual(Buffer.from(hashOf(text), 'hex'), Buffer.from(hash, 'hex'))",
        'return hashOf(text) === hash',
      ],
    ],
  ),
]
