// Mutants of what a volunteer does beside computing: collectives, links, its steps, its recovery.
import { type Mutant, mutantsOf } from './mutant.ts'

const COLLECTIVES = 'collectives'
const MEMBER = "a member's steps"
const RECOVERY = 'recovery'
const LINKS = 'links'
const RACK = 'machines of a rack'

export const VOLUNTEER: readonly Mutant[] = [
  ...mutantsOf(
    LINKS,
    'volunteer/src/coordinators.ts',
    ['volunteer/test/coordinators'],
    [
      ['a coordinator sends its volunteers anywhere', 'if (!this.mayFollow(url))', 'if (false)'],
      ['the coordinator that sent it on is forgotten', 'this.#told = [this.url, ...', 'this.#told = [...'],
      ['addresses of other authorities are asked in turn', '.filter((url) => this.mayFollow(url))', ''],
    ],
  ),
  ...mutantsOf(
    LINKS,
    'protocol/src/same-authority.ts',
    ['volunteer/test/coordinators'],
    [
      ['https gives way to http', "if (from.protocol === 'https:' && to.protocol !== 'https:') return false", ''],
      ['addresses are neighbours like names', "return !host.startsWith('[') && !/^[\\d.]+$/.test(host)", 'return true'],
      [
        'all names of a top-level domain are of one owner',
        'const LEAST_SHARED_LABELS = 2',
        'const LEAST_SHARED_LABELS = 1',
      ],
    ],
  ),
  ...mutantsOf(
    LINKS,
    'volunteer/src/link/doors.ts',
    ['volunteer/test/doors'],
    [
      ['a certificate is let in for ever', '&& guest.until > now', ''],
      ['a member of an old generation is let in', 'if (!expected.has(member)) known.delete(member)', ''],
      ['WebRTC begins as soon as a port is closed', 'await clock.sleep(end - clock.now(), signal)', ''],
      [
        'a coordinator may have any number of addresses dialled',
        'others.slice(0, Math.max(',
        'others.slice(0, 8 + Math.max(',
      ],
      ['a door that never opened is dialled at each ballot', 'this.#shut.set(member, clock.now() + RETRY_MS)', ''],
    ],
  ),
  ...mutantsOf(
    LINKS,
    'volunteer/src/link/candidate-gate.ts',
    ['volunteer/test/doors'],
    [
      ['a stranger sends volunteers into their own network', '(own && isOfSite(address))', 'isOfSite(address)'],
      ["a volunteer's own machine is dialled", '(here && isLoopback(address))', 'isLoopback(address)'],
    ],
  ),
  ...mutantsOf(
    LINKS,
    'client-node/src/tcp-door.ts',
    ['client-node/test/tcp-link'],
    [
      [
        'any certificate is let in',
        'if (member === undefined || fingerprint === undefined',
        'if (fingerprint === undefined',
      ],
      [
        'any certificate is dialled',
        'if (certificateOf(socket) === fingerprint) resolve(socket)',
        'if (true) resolve(socket)',
      ],
      ['other uses of TLS are let in', '|| socket.alpnProtocol !== PROTOCOL', ''],
      ['handshakes of one address are not counted', 'ofAddress >= MAX_HANDSHAKES_PER_ADDRESS', 'false'],
      ['proofs name one certificate only', 'there: () => inProofs(fingerprint)', "there: () => ''"],
    ],
  ),
  ...mutantsOf(
    LINKS,
    'client-node/src/frame-reader.ts',
    ['client-node/test/tcp-link'],
    [
      [
        'memory is taken for whatever a header says',
        'return frameBytes(header, this.most)',
        'return frameBytes(header, 2 ** 33)',
      ],
      ['a header in two pieces loses its first one', 'frame.set(this.#header)', ''],
    ],
  ),
  ...mutantsOf(
    COLLECTIVES,
    'volunteer/src/reduce/direct-reduce.ts',
    ['volunteer/test/direct-reduce', 'volunteer/test/ring-encodings'],
    [
      ['the first member is in no sum', 'sum.set(this.#contributionOf(0, chunk))', 'sum.fill(0)'],
      ['a frame in our own name is taken', '|| from === this.world.rank || frame.hop !== 0', '|| frame.hop !== 0'],
      [
        'a sum that no member can know yet is taken',
        'if (!this.hasOwn(chunk.bucket))\n      throw',
        'if (false)\n      throw',
      ],
      ['slices far outside are summed', 'this.#judge(chunks)', ''],
    ],
  ),
  ...mutantsOf(
    COLLECTIVES,
    'volunteer/src/reduce/slice-norms.ts',
    ['volunteer/test/slice-norms'],
    [
      [
        'FAR_OUTSIDE 1000 → 20: honest members are blamed',
        'export const FAR_OUTSIDE = 1000',
        'export const FAR_OUTSIDE = 20',
      ],
      ['slices of nothing have a say in what is usual', 'i === rank || norm === 0 ? []', 'i === rank ? []'],
    ],
  ),
  ...mutantsOf(
    COLLECTIVES,
    'volunteer/src/reduce/ring-reduce.ts',
    ['volunteer/test/ring-reduce', 'volunteer/test/step-reduces', 'volunteer/test/ring-encodings'],
    [
      ['a repeated frame is added again', 'if (this.#states[chunk.index] !== CHUNK.empty) return []', ''],
      [
        'a sum that no member can know yet is taken',
        'if (state !== CHUNK.forwarded) throw',
        'if (state === undefined) throw',
      ],
      ['frames at a wrong hop are taken', 'frame.hop !== hopOf(this.world, chunk.segment)', 'false'],
    ],
  ),
  ...mutantsOf(
    COLLECTIVES,
    'volunteer/src/codec/numbers.ts',
    ['volunteer/test/communicator', 'volunteer/test/moves'],
    [
      ['a mean is divided by one rank too few', '= (values[i] ?? 0) / size', '= (values[i] ?? 0) / (size - 1)'],
      [
        'the last numbers of a vector are not added',
        'for (; i < into.length; i++)',
        'for (; i < into.length - 1; i++)',
      ],
    ],
  ),
  ...mutantsOf(
    COLLECTIVES,
    'volunteer/src/codec/ring-codec.ts',
    ['volunteer/test/ring-encodings'],
    [
      ['what an encoding loses is not kept', 'residual[i] = (values[i] ?? 0) - (seen[i] ?? 0)', 'residual[i] = 0'],
      ['the sender keeps what others do not have', 'if (keep) values.set(seen)', ''],
    ],
  ),
  ...mutantsOf(
    COLLECTIVES,
    'protocol/src/floats/encode-int8.ts',
    ['volunteer/test/encodings', 'gpu-encoding'],
    [
      ['ties round towards zero', 'Math.min(LARGEST, exact + 0.5)', 'Math.min(LARGEST, exact + 0.49)'],
      ['a code beyond 127 is taken', 'if (code < -LARGEST) throw', 'if (code < -1000) throw'],
    ],
  ),
  ...mutantsOf(
    COLLECTIVES,
    'protocol/src/floats/encode-sparse2.ts',
    ['model/test/encoded-vector', 'volunteer/test/ring-encodings'],
    [
      ['zeros become small numbers', 'if (chosen.includes(0)) return', 'if (chosen.length === 0) return'],
      ['places repeat', 'if (place <= last || place', 'if (place'],
      ['fewer places than are due are taken', 'if (number !== into.length) throw', 'if (number > into.length) throw'],
      ['more places than are due are taken', 'if (number !== into.length) throw', 'if (number < into.length) throw'],
      ['magnitudes in any order are taken', 'small <= large && large', 'large'],
      ['bits behind the last code are taken', '8 * bytes.length - end) !== 0', '8 * bytes.length - end) < 0'],
      ['an infinity is hidden', 'if (!(all < Number.POSITIVE_INFINITY)) return', 'if (all !== all) return'],
    ],
  ),
  ...mutantsOf(
    COLLECTIVES,
    'protocol/src/floats/kth-largest.ts',
    ['model/test/encoded-vector'],
    [['equal numbers are all taken', '(size === least && tiesLeft-- <= 0)', 'false']],
  ),
  ...mutantsOf(
    LINKS,
    'volunteer/src/link/link-set.ts',
    ['volunteer/test/link-set', 'volunteer/test/hostile-frames'],
    [
      [
        'a silent link is never closed',
        'if (now - open.heardAt > SILENCE_MS) this.#drop',
        'if (now - open.heardAt > 1e9) this.#drop',
      ],
      ['links that closed say who may dial', 'if (this.#isClosed) return\n    this.#expected', 'this.#expected'],
      [
        'a ballot drops shards of a base',
        'this.#keep(({ generation }) => generation === NO_GENERATION)',
        'this.#keep(() => false)',
      ],
      [
        'queued frames of an ended generation go out',
        'this.#keep(({ generation }) => generation === NO_GENERATION)',
        '',
      ],
      ['time that we slept is the silence of others', 'if (slept > HEARTBEAT_MS) open.heardAt += slept', ''],
      [
        'the loss of the link in use is not told while a spare one is open',
        'if (inUse || links.length === 0) this.#events.onLost',
        'if (links.length === 0) this.#events.onLost',
      ],
      [
        "a newcomer's state goes before frames of the ring",
        'this.#ring.shift() ?? this.#nextBulk()',
        'this.#nextBulk() ?? this.#ring.shift()',
      ],
      ['bulk fills a link', 'this.#link.bufferedBytes > BULK_WATER_BYTES ||', ''],
    ],
  ),

  ...mutantsOf(
    MEMBER,
    'volunteer/src/member/member.ts',
    ['volunteer/test/member', 'volunteer/test/assignment'],
    [
      [
        'a source lets members in of a ballot that it did not promise',
        'if (order.generation !== core.promised) return []',
        '',
      ],
      [
        'R3: an older ballot is answered',
        'if (generation < core.promised || (generation === core',
        'if ((generation === core',
      ],
      [
        'I7: a number that another coordinator used is promised again',
        ' || (generation === core.promised && fence > core.fence)',
        '',
      ],
      [
        'R4: a claim begins at what was acknowledged, however old the journal is',
        'claimOf(core, committed)',
        'claimOf(core)',
      ],
      ['R3: a deposed coordinator is obeyed', 'if (order.fence < core.fence) return outdated(core, order)', ''],
      [
        'R10: HELD leaves before the step is applied',
        "return [{ type: 'apply', record, version }, held,",
        "return [held, { type: 'apply', record, version },",
      ],
      [
        'R14: a member goes further ahead than its window',
        'core.tail.length >= PLAN_WINDOW) return []',
        'false) return []',
      ],
      [
        'R7: a version is served that is not held',
        'core.version !== undefined && sameVersion(core.version, version)\n}',
        'core.version !== undefined\n}',
      ],
      ['a generation is given up twice', "if (ring.stage === 'broken') return []\n    ring.stage", 'ring.stage'],
      [
        'an acknowledgement of another branch shortens the tail',
        'if (acknowledged === undefined || !sameVersion(acknowledged, committed)) return []',
        'if (acknowledged === undefined) return []',
      ],
    ],
  ),
  ...mutantsOf(
    MEMBER,
    'volunteer/src/member/assignment.ts',
    ['volunteer/test/assignment', 'volunteer/test/member'],
    [
      [
        'R12: blocks leave a share from its beginning',
        'open?.todo.slice(Math.max(0, open.todo.length - count))',
        'open?.todo.slice(0, count)',
      ],
      [
        'R12: a block that is given up is computed as well',
        'open.todo = open.todo.filter((block) => !blocks.includes(block))',
        'open.todo = [...open.todo]',
      ],
      [
        'a share that others may add to is sealed',
        "return flight.held.size > 0 ? 'wait' : 'complete'",
        "return 'complete'",
      ],
      [
        'R12: any manifests make a step',
        'if (manifests.length === ring.members.length && isPartition(planned.blocks, found)) return undefined',
        'return undefined',
      ],
    ],
  ),

  ...mutantsOf(
    MEMBER,
    'volunteer/src/member/frame-fate.ts',
    ['volunteer/test/frame-fate'],
    [
      [
        'R3: frames of an older generation are summed',
        "if (generation !== ring.generation) return 'generation-stale'",
        "if (generation > ring.generation) return 'generation-stale'",
      ],
      [
        'R3: a generation that was given up takes frames',
        "if (ring === undefined || ring.stage === 'broken') return 'ignore'",
        "if (ring === undefined) return 'ignore'",
      ],
      [
        'frames of any member are summed',
        "return senders(ring).includes(from) ? 'reduce' : 'message-unexpected'",
        "return 'reduce'",
      ],
    ],
  ),
  ...mutantsOf(
    MEMBER,
    'volunteer/src/generation/residual.ts',
    ['volunteer/test/ring-encodings'],
    [
      ['losses of another version join a step', 'this.#feedback.residual.fill(0)\n', ''],
      [
        'losses of a void step join the next',
        'this.#of = isOwn ? { version, kind } : undefined',
        'this.#of = { version, kind }',
      ],
    ],
  ),
  ...mutantsOf(
    MEMBER,
    'volunteer/src/generation/generation-runner.ts',
    ['volunteer/test/ring-gradients'],
    [['R3: a halt leaves the share under way', 'this.#generation.abort()\n', '']],
  ),
  ...mutantsOf(
    MEMBER,
    'volunteer/src/compute.ts',
    ['volunteer/test/gradient-buffers', 'volunteer/test/ring-gradients'],
    [
      [
        'R3: memory that a computation still writes is leased again',
        'if (this.#uses === 0) this.#giveBack(this.values)',
        'this.#giveBack(this.values)',
      ],
      ['R3: the result of an older assignment counts', 'if (!this.#isOver) return result\n', 'return result\n'],
    ],
  ),
  ...mutantsOf(
    RECOVERY,
    'volunteer/src/member/learner.ts',
    ['volunteer/test/learner'],
    [
      [
        'R7: a step is applied where its parent is not held',
        'if (next === undefined || !sameVersion(next, fetched)) return []',
        'if (next === undefined) return []',
      ],
      [
        'a newcomer that is always a step behind never says how far it is',
        'if (report.length > 0) learning.reportAt = learning.records.at(-1)?.v ?? next.v',
        'learning.reportAt = learning.records.at(-1)?.v ?? next.v',
      ],
      [
        'what was never committed is given up for an offer',
        'if (core.version !== undefined && !onlyCommitted(core)) return ready(core, null)',
        '',
      ],
      [
        'offers of older ballots are taken',
        'if (generation < core.promised || core.ring !== undefined ' +
          '|| core.asyncEpoch !== undefined || again) return []',
        'if (core.ring !== undefined || core.asyncEpoch !== undefined || again) return []',
      ],
    ],
  ),
  ...mutantsOf(
    RECOVERY,
    'volunteer/src/recovery/local-version.ts',
    ['volunteer/test/held-version', 'volunteer/test/local-round'],
    [
      ['a step is applied and nothing is swapped', 'this.#held = this.#spare\n', ''],
      ['the reduced gradient of a step is not kept', 'this.#reduced.push({ version, sum })', ''],
      [
        'what was prepared of another sum is applied',
        'prepared?.from !== from || prepared.sum !== sum',
        'prepared?.from !== from',
      ],
      ['what was prepared of another version is applied', 'prepared?.from !== from || prepared.sum', 'prepared?.sum'],
      ['what was prepared with another rate is applied', '&& prepared.scaling?.lr === scaling?.lr', ''],
      [
        'what was prepared is computed again',
        'if (!isPrepared(this.#prepared, record, { from: this.#held, sum })) this',
        'this',
      ],
    ],
  ),
  ...mutantsOf(
    RECOVERY,
    'volunteer/src/recovery/kept-state.ts',
    ['volunteer/test/kept-state'],
    [
      ['a damaged state is believed', 'return isWhole ? decode(rest) : undefined', 'return decode(rest)'],
      [
        'a state is written with every checkpoint',
        'this.#clock.now() - this.#keptAt >= KEEP_EVERY_MS',
        'this.#clock.now() >= this.#keptAt',
      ],
    ],
  ),
  ...mutantsOf(
    RACK,
    'client-node/src/rack/rack.ts',
    ['client-node/test/rack'],
    [
      ['a machine that is gone is not looked for', '!signal.aborted;)', '!signal.aborted && failures < 1;)'],
      [
        'vectors of other machines take no room',
        'bounds.maxBytes - devices * VECTORS_OF_EACH * vectorBytes',
        'bounds.maxBytes',
      ],
      ['a model that is refused is asked for again', 'if (!passes) return', ''],
    ],
  ),
  ...mutantsOf(
    RACK,
    'client-node/src/rack/lent-machine.ts',
    ['client-node/test/rack'],
    [
      [
        'two volunteers are computed for at once',
        'if (guest !== undefined) return refuse(',
        'if (false) return refuse(',
      ],
    ],
  ),
  ...mutantsOf(
    RACK,
    'volunteer/src/graph/mirrored-executor.ts',
    ['volunteer/test/mirrored-executor'],
    [
      [
        'a device that joins has no parameters',
        'if (this.#parameters !== undefined) executor.loadParameters(this.#parameters)',
        '',
      ],
      ['a device that joins too late stays open', 'if (this.#isReleased) return executor.destroy()', ''],
    ],
  ),
  ...mutantsOf(
    RECOVERY,
    'volunteer/src/recovery/chunk-board.ts',
    ['volunteer/test/state-fetch'],
    [
      [
        'a chunk is not compared with its hash',
        'if (right) this.#states[index] = STATE.here',
        'if (right || true) this.#states[index] = STATE.here',
      ],
      ['the first list of hashes counts, whatever the others say', 'votes(list) > votes(best) ? list : best', 'best'],
      [
        'a chunk that did not come is asked for no more',
        'if (this.#states[index] === STATE.asked) this.#states[index] = STATE.missing',
        '',
      ],
    ],
  ),
  ...mutantsOf(
    RECOVERY,
    'volunteer/src/recovery/state-fetch.ts',
    ['volunteer/test/state-fetch', 'volunteer/test/hostile-frames'],
    [
      ['an answer of any size is believed', 'total === 0 || total > maxBytes ||', 'total === 0 ||'],
      [
        'answers of an older generation count',
        'question === undefined || frame.generation !== question.wanted.generation',
        'question === undefined',
      ],
      [
        'a fetch that was broken off begins anew',
        'if (existing !== undefined && sameList(existing.list, agreed)) return existing',
        '',
      ],
    ],
  ),
]
