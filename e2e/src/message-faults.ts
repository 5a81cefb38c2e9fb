// Faults in what a volunteer says to the coordinator: its n-th message of one type meets one. What it does is honest;
// what it says of it is not.
import {
  type Claim,
  digest,
  encode,
  type JobId,
  named,
  type OnWire,
  type StepRecord,
  type ToCoordinator,
} from '@starling-grid/protocol'
import type { VolunteerHost } from '@starling-grid/volunteer'

type Said = ToCoordinator['type']

type State = Extract<ToCoordinator, { type: 'state' }>

interface Saying {
  readonly message: ToCoordinator
  /** how many of its type were said before, and this one */
  readonly n: number
  /** The next claim is another one. */
  lieInNextClaim(change: (state: State) => State): void
}

interface MessageFault {
  /** messages that it counts, and that meet it */
  readonly type: Said
  /** What is said instead: other messages, texts that are none, more of them, or nothing. */
  readonly change: (saying: Saying, number: number) => readonly (ToCoordinator | string)[]
}

/** More than a token bucket holds (coordinator/src/net/session.ts). */
const FLOOD_MESSAGES = 5000
const FALSE_DIGEST = digest(new TextEncoder().encode('made up'))

/** Instead of a message: the process ends here, once earlier messages have left. */
const DEATH = ''
/** ms for a message to leave the process */
const LEFT_MS = 50

const FAULTS: Readonly<Record<string, MessageFault>> = {
  /** killed with a step applied and before HELD; killed when that was told; killed at the end of a ballot */
  'die-before-held': { type: 'held', change: dieAt },
  'die-after-held': { type: 'held', change: instead((message) => [message, DEATH]) },
  'die-before-confirm': { type: 'confirm', change: dieAt },
  /** a digest that no other member has */
  'lie-digest': { type: 'held', change: instead(withRecord((record) => ({ ...record, gradDigest: FALSE_DIGEST }))) },
  /** a step of other blocks than the plan has */
  'lie-blocks': {
    type: 'held',
    change: instead(withRecord((record) => ({ ...record, blocks: [...record.blocks].reverse() }))),
  },
  /** samples that these blocks do not have */
  'lie-samples': {
    type: 'held',
    change: instead(withRecord((record) => ({ ...record, samples: 2 * record.samples, targets: 2 * record.targets }))),
  },
  /** a chain seven steps ahead of the others, in the ballot that it asks for */
  'lie-ahead': {
    type: 'held',
    change: claiming((last) =>
      Array.from({ length: 7 }, (_, i) => ({ ...last, v: last.v + 1 + i, gradDigest: FALSE_DIGEST })),
    ),
  },
  /** one step ahead, as a survivor may be, with blocks that are counted already */
  'lie-twice': { type: 'held', change: claiming((last) => [{ ...last, v: last.v + 1 }]) },
  'say-garbage': { type: 'held', change: instead((message) => ['{"type":"held","__proto__":{}}', message]) },
  'flood-messages': {
    type: 'held',
    change: instead((message) => new Array<ToCoordinator>(FLOOD_MESSAGES).fill(message)),
  },
}

export const MESSAGE_FAULTS: readonly string[] = Object.keys(FAULTS)

/** The host with this fault in its socket; undefined when there is no such fault. */
export function withMessageFault(host: VolunteerHost, kind: string, number: number): VolunteerHost | undefined {
  const fault = Object.hasOwn(FAULTS, kind) ? FAULTS[kind] : undefined
  if (fault === undefined) return undefined
  let n = 0
  let nextClaim: ((state: State) => State) | undefined
  const change = (message: ToCoordinator): readonly (ToCoordinator | string)[] => {
    if (message.type === fault.type)
      return fault.change(
        {
          message,
          n: ++n,
          lieInNextClaim: (lie) => {
            nextClaim = lie
          },
        },
        number,
      )
    if (message.type !== 'state' || nextClaim === undefined) return [message]
    const lie = nextClaim
    nextClaim = undefined
    return [lie(message)]
  }
  return {
    ...host,
    dialCoordinator: async (path) => {
      const socket = await host.dialCoordinator(path)
      const send = socket.send.bind(socket)
      socket.send = (text) => {
        const message = JSON.parse(text) as OnWire<ToCoordinator>
        if ('job' in message) sayAll(change(message), { job: message.job, send })
        else send(text)
      }
      return socket
    },
  }
}

function sayAll(
  messages: readonly (ToCoordinator | string)[],
  { job, send }: { readonly job: JobId; readonly send: (text: string) => void },
): void {
  for (const message of messages) {
    if (message === DEATH) setTimeout(() => process.kill(process.pid, 'SIGKILL'), LEFT_MS)
    else send(typeof message === 'string' ? message : encode(named(job, message)))
  }
}

function dieAt({ message, n }: Saying, number: number): ToCoordinator[] {
  if (n === number) process.kill(process.pid, 'SIGKILL')
  return [message]
}

function instead(change: (message: ToCoordinator) => (ToCoordinator | string)[]): MessageFault['change'] {
  return ({ message, n }, number) => (n === number ? change(message) : [message])
}

function withRecord(change: (record: StepRecord) => StepRecord): (message: ToCoordinator) => ToCoordinator[] {
  return (message) => [message.type === 'held' ? { ...message, record: change(message.record) } : message]
}

/** It gives the generation up, and claims more than it holds in the ballot that follows. */
function claiming(more: (last: StepRecord) => readonly StepRecord[]): MessageFault['change'] {
  return ({ message, n, lieInNextClaim }, number) => {
    if (n !== number || message.type !== 'held') return [message]
    const { fence, generation, record } = message
    lieInNextClaim((state) =>
      state.claim === null ? state : { ...state, claim: prolonged(state.claim, record, more) },
    )
    return [
      message,
      {
        type: 'abort',
        fence,
        generation,
        step: record.v + 1,
        blamed: null,
        why: 'stalled',
        links: [],
        code: 'reduce-timeout',
        message: 'a pretext',
      },
    ]
  }
}

function prolonged(claim: Claim, known: StepRecord, more: (last: StepRecord) => readonly StepRecord[]): Claim {
  const last = claim.records.at(-1) ?? known
  return { ...claim, records: [...claim.records, ...more({ ...last, v: claim.base.v + claim.records.length })] }
}
