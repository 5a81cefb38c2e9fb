// A simulated run for tests and screenshots: five members in a ring, one is killed, an async phase, four in a ring
// again. Deterministic: the same seed gives the same points.
import {
  type DepartureView,
  jobId,
  memberId,
  type MemberView,
  type Mode,
  type RunEvent,
  type RunView,
  type StepPoint,
  type ValidationPoint,
  versionId,
  type WatchMessage,
} from '@starling-grid/protocol'

export const STARTED_AT = Date.UTC(2026, 10, 21, 12, 0, 0)
export const BATCH_SAMPLES = 512
const STEP_MS = 850
const STEPS_PER_EPOCH = 16
const EPOCHS = 40
const TRAIN_SAMPLES = STEPS_PER_EPOCH * BATCH_SAMPLES
const KILLED_AT_STEP = 224
const RING_AGAIN_AT_STEP = 272

export type Snapshot = Extract<WatchMessage, { type: 'snapshot' }>
export type Update = Extract<WatchMessage, { type: 'update' }>

export const idOf = (index: number) => memberId((index + 1).toString(16).padStart(2, '0').repeat(16))
const versionAt = (v: number) => ({
  v,
  id: versionId((v * 2654435761).toString(16).padStart(16, '0').slice(-16).repeat(4)),
})

const MEMBERS: readonly Pick<MemberView, 'name' | 'client' | 'adapter' | 'samplesPerSecond'>[] = [
  {
    name: 'marigold',
    client: 'node',
    adapter: { name: 'NVIDIA GeForce RTX 3060', vendor: 'nvidia', software: false, executor: 'webgpu' },
    samplesPerSecond: 412,
  },
  {
    name: "Anna's laptop",
    client: 'tab',
    adapter: { name: 'apple metal-3', vendor: 'apple', software: false, executor: 'webgpu' },
    samplesPerSecond: 288,
  },
  {
    name: 'lab-7',
    client: 'node',
    adapter: { name: 'SwiftShader Device (Subzero)', vendor: 'google', software: true, executor: 'webgpu' },
    samplesPerSecond: 41,
  },
  {
    name: 'Starling 4821',
    client: 'tab',
    adapter: { name: 'intel gen-12lp', vendor: 'intel', software: false, executor: 'webgpu' },
    samplesPerSecond: 133,
  },
  {
    name: 'hamish',
    client: 'tab',
    adapter: { name: 'qualcomm adreno-7xx', vendor: 'qualcomm', software: false, executor: 'webgpu' },
    samplesPerSecond: 97,
  },
]
/** its link to the next member goes through the coordinator */
const RELAYED = 'lab-7'
const DEPARTED: DepartureView = {
  id: idOf(3),
  name: 'Starling 4821',
  at: at(KILLED_AT_STEP),
  reason: 'no heartbeat for 5 s; its ring neighbour lost the link',
  expected: false,
}

/** The run as the coordinator would send it to a visitor who opens the dashboard after step `v`. */
export function snapshotAt(v: number, change: Partial<RunView> = {}): Snapshot {
  return {
    type: 'snapshot',
    run: { ...runAt(v), ...change },
    steps: range(1, v).map(stepPoint),
    validations: validationsUpTo(v),
    events: eventsUpTo(v),
  }
}

/** What comes when steps from + 1 … to are committed. */
export function updateTo(from: number, to: number, change: Partial<RunView> = {}): Update {
  return {
    type: 'update',
    run: { ...runAt(to), ...change },
    steps: range(from + 1, to).map(stepPoint),
    validations: validationsUpTo(to).filter((point) => point.v > from),
    events: eventsUpTo(to).filter((event) => event.at > at(from)),
  }
}

export function runAt(v: number): RunView {
  const mode = modeAt(v)
  const killed = v >= KILLED_AT_STEP
  const changes = Number(killed) + Number(v >= RING_AGAIN_AT_STEP)
  const members = MEMBERS.map(memberAt(mode)).filter((member) => !killed || member.id !== DEPARTED.id)
  const expected = EPOCHS * TRAIN_SAMPLES
  const committed = Math.min(expected, v * BATCH_SAMPLES)
  const speed = members.reduce((sum, member) => sum + member.samplesPerSecond, 0)
  return {
    job: JOB,
    ...(mode === 'async' ? ASYNC_PHASE : RING_PHASE),
    reason:
      mode === 'async'
        ? `${members.length} members push to the coordinator`
        : `${members.length} members hold version ${v} and agree on it`,
    paused: false,
    mode,
    modeEpoch: changes + 1,
    generation: changes + 2,
    version: versionAt(v),
    epoch: Math.floor(v / STEPS_PER_EPOCH),
    queue: queueAt(v),
    validationQueue: { todo: 0, pending: 0, done: 8 },
    detail: 'whole',
    wait: null,
    memberCount: members.length,
    members: members.map((member, rank) =>
      mode === 'async' ? member : { ...member, rank, fraction: 1 / members.length, relayed: member.name === RELAYED },
    ),
    departed: killed ? [DEPARTED] : [],
    samplesCommitted: committed,
    samplesExpected: expected,
    samplesPerSecond: speed,
    etaSeconds: (expected - committed) / speed,
    lastStep: v === 0 ? null : stepPoint(v),
    lastValidation: validationsUpTo(v).at(-1) ?? null,
    best: bestUpTo(v),
    forecast: { members: 4, samplesPerSecond: 870, etaSeconds: 182, computeMs: 510, exchangeMs: 78 },
    checkpoint:
      v < 20
        ? null
        : {
            ...versionAt(v - (v % 20)),
            bytes: 493_000,
            at: at(v - (v % 20)),
            witnessed: v % 40 >= 20,
            agreeing: v % 40 >= 20 ? members.length : 1,
            members: members.length,
          },
    audit: { every: 200, agreed: 3, differed: 0, notComputed: 1, off: null, last: null },
    relay: { links: mode === 'async' ? 0 : 1, bytes: 31_000 * v, bytesPerSecond: 36_500 },
    refusals: killed ? { 'generation-stale': 3, 'lease-stale': 1 } : {},
    startedAt: STARTED_AT,
    finishedAt: null,
    exportPath: v < 20 ? null : '/api/jobs/digits/model.safetensors',
  }
}

const JOB: RunView['job'] = {
  id: jobId('digits'),
  name: 'Handwritten digits',
  owner: 'Botanical Garden Halle',
  purpose:
    'Teaches LeNet-5 to read handwritten digits, so that the garden can read the labels of its herbarium sheets.',
  model: 'LeNet-5',
  parameters: 61_706,
  activationBytes: 60_008,
  dataset: 'digits',
  trainSamples: TRAIN_SAMPLES,
  validationSamples: 1024,
  downloadBytes: 7_840_000,
  epochs: EPOCHS,
  stop: { epochs: EPOCHS },
  evaluate: {},
  blocksPerEpoch: TRAIN_SAMPLES / 64,
  blockSamples: 64,
  batchBlocks: 8,
  priority: 0,
  volunteers: { min: 1, max: null },
}
const RING_PHASE = {
  phase: 'ring',
  exchange: {
    type: 'ring',
    reason:
      "a step's exchange would take 84 ms around the ring and 71 ms as a direct exchange (2.1 ms from one to " +
      'another, 18 MB/s)',
    costs: { ring: 84, direct: 71 },
  },
  modeReason: 'Membership has been stable for 40 steps; links to all neighbours are open.',
} as const
const ASYNC_PHASE = {
  phase: 'async',
  exchange: null,
  modeReason: '3 reduces in a row were aborted: a member vanished during each.',
} as const

function memberAt(mode: Mode) {
  return (member: (typeof MEMBERS)[number], index: number): MemberView => fixtureMember(mode, member, index)
}

function fixtureMember(mode: Mode, member: (typeof MEMBERS)[number], index: number): MemberView {
  const ringActivity = index % 2 === 0 ? 'computing' : 'exchanging'
  return {
    ...member,
    id: idOf(index),
    state: 'training',
    activity: mode === 'async' ? 'pushing' : ringActivity,
    rank: null,
    fraction: null,
    hidden: false,
    leaseMs: 10_000,
    relayed: false,
    tcpLinks: index < 2 ? [idOf(1 - index)] : [],
    bytesSent: 81_000_000 + 1_700_000 * index,
    bytesReceived: 80_400_000 + 1_500_000 * index,
    joinedAt: STARTED_AT - 1000 * (10 - index),
  }
}

export function stepPoint(v: number): StepPoint {
  const ideal = 0.05 + 2.25 * Math.exp(-v / 70)
  const loss = ideal * (1 + 0.22 * noise(v))
  return {
    v,
    loss,
    accuracy: Math.min(1, Math.max(0, 1 - ideal / 2.5 + 0.03 * noise(v + 0.5))),
    samples: BATCH_SAMPLES,
    mode: modeAt(v),
    at: at(v),
  }
}

function bestUpTo(v: number): RunView['best'] {
  const [best] = validationsUpTo(v).toSorted((a, b) => a.loss - b.loss)
  if (best === undefined) return null
  return { ...versionAt(best.v), metric: 'loss', value: best.loss, loss: best.loss, accuracy: best.accuracy }
}

function validationsUpTo(v: number): ValidationPoint[] {
  return range(1, Math.floor(v / STEPS_PER_EPOCH)).map((epoch) => {
    const step = epoch * STEPS_PER_EPOCH
    const ideal = 0.05 + 2.25 * Math.exp(-step / 70)
    return {
      v: step,
      epoch: epoch - 1,
      accuracy: Math.max(0.1, 0.985 - ideal / 2.6),
      loss: ideal * 1.05,
      samples: 1024,
      confirmed: true,
      at: at(step) + 400,
    }
  })
}

function eventsUpTo(v: number): RunEvent[] {
  const all: RunEvent[] = [
    { at: at(0), kind: 'run', text: 'The run began with 5 members.' },
    {
      at: at(0) + 700,
      kind: 'generation',
      text: "Generation 2: marigold, Anna's laptop, lab-7, Starling 4821, hamish, at version 0.",
    },
    ...range(1, Math.floor(v / 20)).map((k): RunEvent => ({
      at: at(20 * k),
      kind: 'checkpoint',
      text: `Version ${20 * k} is durable; uploaded by ${MEMBERS[k % 3]?.name}.`,
    })),
    ...validationsUpTo(v).map((point): RunEvent => ({
      at: point.at,
      kind: 'validation',
      text: `Version ${point.v}: ${(100 * point.accuracy).toFixed(1)} % of 1,024 right.`,
    })),
    {
      at: at(KILLED_AT_STEP),
      kind: 'member',
      text: 'Starling 4821 left: no heartbeat for 5 s. Its 2 blocks go back to the queue.',
    },
    { at: at(KILLED_AT_STEP) + 300, kind: 'mode', text: 'Mode async: 3 reduces in a row were aborted.' },
    { at: at(RING_AGAIN_AT_STEP), kind: 'mode', text: 'Mode ring: membership has been stable for 40 steps.' },
  ]
  return all.filter((event) => event.at <= at(v) + 800).sort((a, b) => a.at - b.at)
}

function queueAt(v: number): RunView['queue'] {
  const done = (v % STEPS_PER_EPOCH) * JOB.batchBlocks
  const pending = Math.min(3 * JOB.batchBlocks, STEPS_PER_EPOCH * JOB.batchBlocks - done)
  return { done, pending, todo: STEPS_PER_EPOCH * JOB.batchBlocks - done - pending, quarantined: 0 }
}

function modeAt(v: number): Mode {
  return v >= KILLED_AT_STEP && v < RING_AGAIN_AT_STEP ? 'async' : 'ring'
}
function at(v: number): number {
  return STARTED_AT + v * STEP_MS
}
function range(from: number, to: number): number[] {
  return Array.from({ length: Math.max(0, to - from + 1) }, (_, i) => from + i)
}
/** In [−1, 1), the same for the same v. */
function noise(v: number): number {
  const x = Math.sin(v * 12.9898) * 43758.5453
  return 2 * (x - Math.floor(x)) - 1
}
