// A stranger who speaks the protocol and attacks the run, one way at a time. Each time it must be found, named and
// refused, and the others must go on.
import { fileURLToPath } from 'node:url'
import { type Child, type Grid, stopChild, type Watch } from '@starling-grid/cli'
import type { ErrorCode } from '@starling-grid/protocol'
import { type Attack, type Injection, rounded, type InjectionResult } from './scenario.ts'

const ENTRY = fileURLToPath(new URL('../faulty-volunteer.ts', import.meta.url))

interface AttackWay {
  readonly attack: string
  /** of e2e/src/faulty-volunteer.ts: at the third of its frames or messages, when it is a member like the others */
  readonly fault: string
  readonly code: ErrorCode
  /** over TCP, where frames follow each other without a border: what is missing is taken from the next one */
  readonly overTcp?: ErrorCode
}

const WAYS: readonly AttackWay[] = [
  { attack: 'frames that are none', fault: 'send-garbage', code: 'message-malformed' },
  {
    attack: 'frames that are shorter than they say',
    fault: 'send-truncated',
    code: 'message-malformed',
    overTcp: 'checksum',
  },
  { attack: 'chunks of another length than planned', fault: 'send-short', code: 'message-malformed' },
  { attack: 'payloads without their checksum', fault: 'send-flipped-bit', code: 'checksum' },
  { attack: 'sums that are not numbers', fault: 'send-nan', code: 'gradient-not-finite' },
  { attack: 'frames of an older generation', fault: 'send-old', code: 'generation-stale' },
  { attack: 'wrong final sums', fault: 'send-wrong-sum', code: 'digest-mismatch' },
  { attack: 'a digest that no other member has', fault: 'lie-digest', code: 'digest-mismatch' },
  { attack: 'a step of other blocks', fault: 'lie-blocks', code: 'message-unexpected' },
  { attack: 'a step of more samples', fault: 'lie-samples', code: 'message-malformed' },
  { attack: 'a claim seven steps ahead', fault: 'lie-ahead', code: 'message-unexpected' },
  { attack: 'a claim that counts blocks twice', fault: 'lie-twice', code: 'message-unexpected' },
  { attack: 'messages that are none', fault: 'say-garbage', code: 'message-malformed' },
  { attack: 'a flood of messages', fault: 'flood-messages', code: 'rate-exceeded' },
]

export const ATTACKS = WAYS.length
/** Frames and messages of its kind before the attack. */
const PRELUDE = 3

export async function hostile(grid: Grid, { number, say }: Injection): Promise<InjectionResult> {
  const way = WAYS[number % WAYS.length]
  if (way === undefined) throw new Error('internal: no such attack')
  const { attack, fault } = way
  const { watch } = grid
  const codes = [way.code, ...(way.overTcp === undefined ? [] : [way.overTcp])]
  const refusals = (code: ErrorCode): number => watch.run?.refusals[code] ?? 0
  const before = { refused: new Map(codes.map((code) => [code, refusals(code)])), at: Date.now() }
  // It lies about sums, not about arithmetic: on the CPU, since an adapter's start is most of the time until it
  // attacks.
  const child = grid.addVolunteer({
    name: `hostile-${number + 1}`,
    executor: 'reference',
    entry: ENTRY,
    env: { STARLING_FAULT: `${fault}:${PRELUDE}` },
  })
  const { named, code } = await watch.waitFor(`the refusal of ${attack} (${codes.join(' or ')})`, ({ events }) => {
    const seen = codes.find((one) => refusals(one) > (before.refused.get(one) ?? 0))
    const event = events.find(
      ({ at, kind, text }) =>
        at >= before.at && (kind === 'refusal' ? accuses(text, child.name) : text.includes(`about ${child.name}`)),
    )
    return seen === undefined || event === undefined ? undefined : { named: event.text, code: seen }
  })
  say(`  ${code}: ${named}`)
  const outcome = outcomeOf(grid, child)
  await stopChild(child, 0)
  await watch.waitFor(
    `a step without ${child.name}`,
    ({ run, steps }) =>
      run?.members.every(({ name }) => name !== child.name) === true &&
      run.phase === 'ring' &&
      (steps.at(-1)?.at ?? 0) > before.at,
  )
  return { faults: [], attack: { attack, code, named, outcome, pause: rounded(longestPause(watch, before.at)) } }
}

/** It is named for what it did, not for what it says that others did. */
function accuses(text: string, name: string): boolean {
  return text.includes(name) && !text.includes(`${name} got `)
}

function outcomeOf({ watch }: Grid, { name }: Child): Attack['outcome'] {
  if (watch.run?.departed.some((gone) => gone.name === name) === true) return 'evicted'
  return watch.events.some(({ text }) => text.startsWith(`${name} is out of the ring`)) ? 'left out' : 'refused'
}

/** seconds between two steps, from this time (ms) on */
function longestPause({ steps }: Watch, from: number): number {
  const times = steps.map(({ at }) => at)
  return (
    times.reduce((longest, at, i) => (at < from ? longest : Math.max(longest, at - (times[i - 1] ?? at))), 0) / 1000
  )
}
