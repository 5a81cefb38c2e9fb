// One volunteer's links as a set of commands with JSON arguments, the same program in a Node process and in a tab.
// Opens a peer network, plays the far end of the link suite, runs cases as the near end, takes part in a ring.
import {
  checksum,
  memberId,
  packFrame,
  trainingBlock,
  unpackFrame,
  type MemberId,
  systemClock,
} from '@starling-grid/protocol'
import type { PeerLink, PeerNetwork, RelaySocket, SignallingAccess } from '@starling-grid/volunteer'
import {
  type Addressed,
  answerFarEnd,
  type CallFarEnd,
  type FarEnd,
  farEndOf,
  openRelayLink,
  peerLinkCases,
  remoteFarEnd,
  RingReduce,
} from '@starling-grid/volunteer/testing'

export interface LinkPeerHost {
  openPeerNetwork(access: SignallingAccess): Promise<PeerNetwork>
  dialRelay(url: string, token: string): Promise<RelaySocket>
  /** a command for the far end of the case that runs here */
  readonly callFarEnd: CallFarEnd
}

export interface RingOrder {
  readonly members: readonly MemberId[]
  readonly index: number
  readonly floats: number
  readonly rounds: number
}

export interface RingResult {
  /** of the bytes of the last sum */
  readonly checksum: number
  /** largest difference from the sum that the members' formula gives */
  readonly worst: number
  readonly manifests: number
  /** milliseconds of all rounds */
  readonly milliseconds: number
}

type Commands = Record<string, (...args: never[]) => Promise<unknown>>

/** The commands of one peer. */
export function linkPeer(host: LinkPeerHost): Commands {
  let network: PeerNetwork | undefined
  let arrival: Promise<PeerLink> | undefined
  let far: Promise<FarEnd> | undefined
  let dialled: PeerLink | undefined
  let access: SignallingAccess | undefined
  const open = (): PeerNetwork => {
    if (network === undefined) throw new Error('internal: open comes first')
    return network
  }
  const dial = (peer: MemberId): Promise<PeerLink> => open().dial(memberId(peer), AbortSignal.timeout(30_000))
  return {
    async open(given: SignallingAccess) {
      access = given
      network = await host.openPeerNetwork(given)
    },
    /** The far end of a link through the coordinator. */
    async acceptRelay(peer: MemberId) {
      arrival = relay(host, access, peer)
      far = arrival.then(farEndOf)
      far.catch(() => undefined) // told by the next command
    },
    async runRelayCase(name: string, peer: MemberId) {
      return runCase(host, name, await relay(host, access, peer))
    },
    async accept(peer: MemberId) {
      open().expect([memberId(peer)])
      arrival = new Promise((resolve) => {
        open().onLink = resolve
      })
      far = arrival.then(farEndOf)
    },
    async refuse() {
      open().onLink = undefined
    },
    async far(command: string, args: readonly unknown[]) {
      if (far === undefined) throw new Error('internal: accept comes first')
      return answerFarEnd(await far, command, args)
    },
    async runCase(name: string, peer: MemberId) {
      return runCase(host, name, await dial(peer))
    },
    async dial(peer: MemberId) {
      dialled = await dial(peer)
    },
    async sendNumbered(count: number, payloadBytes: number) {
      if (dialled !== undefined) await farEndOf(dialled).sendNumbered(count, payloadBytes)
    },
    /** What the dial said, for dials that cannot succeed within `milliseconds`. */
    async dialInVain(peer: MemberId, milliseconds: number) {
      return open()
        .dial(memberId(peer), AbortSignal.timeout(milliseconds))
        .then(
          () => 'a link',
          (error: Error) => error.name,
        )
    },
    async reconnect(access: SignallingAccess) {
      open().reconnect(access)
    },
    async ring(order: RingOrder) {
      if (arrival === undefined) throw new Error('internal: accept comes first')
      const successor = await dial(at(order.members, (order.index + 1) % order.members.length))
      return runRing(order, successor, await arrival)
    },
    async stop() {
      network?.stop()
    },
  }
}

function relay({ dialRelay }: LinkPeerHost, access: SignallingAccess | undefined, peer: MemberId): Promise<PeerLink> {
  if (access === undefined) throw new Error('internal: open comes first')
  const { self, token, url } = access
  return openRelayLink(
    { self, token, clock: systemClock, dial: (path, given) => dialRelay(url.replace(/^http/, 'ws') + path, given) },
    memberId(peer),
    AbortSignal.timeout(30_000),
  )
}

/** Returns what carried it. */
async function runCase({ callFarEnd }: LinkPeerHost, name: string, link: PeerLink): Promise<PeerLink['carrier']> {
  await peerLinkCases.find((one) => one.name === name)?.run(link, remoteFarEnd(callFarEnd))
  link.close('the case is over')
  return link.carrier
}

async function runRing(
  { members, index, floats, rounds }: RingOrder,
  successor: PeerLink,
  predecessor: PeerLink,
): Promise<RingResult> {
  const size = members.length
  const gradient = Float32Array.from({ length: floats }, (_, i) => valueOf(index, i))
  const reduces = Array.from(
    { length: rounds },
    (_, step) => new RingReduce({ generation: 1, step, world: { rank: index, size }, length: floats }),
  )
  let sending = Promise.resolve()
  const send = (frames: readonly Addressed[]): void => {
    for (const { frame } of frames) sending = sending.then(() => successor.send(packFrame(frame)))
  }
  let progressed = (): void => {}
  predecessor.onFrame = (bytes) => {
    const frame = unpackFrame(bytes)
    send(at(reduces, frame.step).accept(frame, (index + size - 1) % size))
    progressed()
  }
  const begin = performance.now()
  for (const reduce of reduces) {
    send(
      reduce.contribute(gradient, {
        blocks: [trainingBlock(0, index)],
        samples: 1,
        targets: 1,
        lossSum: 1,
        correct: 0,
      }),
    )
    while (!reduce.done)
      await new Promise<void>((resolve) => {
        progressed = resolve
      })
  }
  await sending
  const last = at(reduces, rounds - 1)
  return {
    checksum: checksum(bytesOf(last.sum)),
    worst: worstError(last.sum, size),
    manifests: last.manifests.length,
    milliseconds: performance.now() - begin,
  }
}

/** Small integers: their sums are exact in f32 in any order. */
function valueOf(member: number, i: number): number {
  return ((i + member * 7) % 1000) - 500
}

function worstError(sum: Float32Array, size: number): number {
  let worst = 0
  sum.forEach((value, i) => {
    let expected = 0
    for (let member = 0; member < size; member++) expected += valueOf(member, i)
    worst = Math.max(worst, Math.abs(value - expected))
  })
  return worst
}

function bytesOf(values: Float32Array): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength)
}

function at<T>(values: readonly T[], index: number): T {
  const value = values[index]
  if (value === undefined) throw new Error(`internal: no element ${index}`)
  return value
}
