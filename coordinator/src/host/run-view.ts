// A run as the dashboard shows it. It is made from durable rows, the connected members, and the state of the decisions,
// which may be ahead of the disk. Changes nothing.
import { metricsOfModel, outputShape, takesTokens } from '@starling-grid/model'
import {
  EXCHANGES,
  type JobId,
  measuredValue,
  type MemberId,
  type MemberView,
  pathTo,
  type Phase,
  requirementsOf,
  ROUTES,
  type RunView,
  samplesIn,
  waitText,
  type WaitView,
} from '@starling-grid/protocol'
import type { Job } from '../jobs/jobs.ts'
import { crowdView } from '../run/async/crowd.ts'
import { modeReason } from '../run/ballot/ballot.ts'
import { areEpochsBounded, bestOf } from '../run/history/ending.ts'
import { trainedMs } from '../run/history/training-time.ts'
import { validationBlocks } from '../run/history/validation.ts'
import { forecastSpeed } from '../run/policy/forecast.ts'
import { leaseMs } from '../run/queue/lease-table.ts'
import { blocksIn, currentEpoch } from '../run/queue/scheduler.ts'
import { OWNER_PAUSED } from '../run/ring/parking.ts'
import type { RunState } from '../run/state.ts'
import { modelSize } from './model-size.ts'
import { type Committed, samplesExpected, secondsLeft, speedOf } from './progress.ts'
import type { RunHistory } from './run-history.ts'

/** What a session knows of its volunteer. */
export type PresentMember = Pick<
  MemberView,
  | 'id'
  | 'name'
  | 'client'
  | 'adapter'
  | 'activity'
  | 'samplesPerSecond'
  | 'bytesSent'
  | 'bytesReceived'
  | 'tcpLinks'
  | 'joinedAt'
>

/** A volunteer with an open session, member or not: of a crowd most are counted only. */
export interface Presence {
  readonly id: MemberId
  /** the job that it was given last */
  job(): JobId | undefined
  member(): PresentMember
}

/**
 * Members that a view names. Of thousands it would be a megabyte, made twice a second while they wait for their leases.
 */
export const LISTED_MEMBERS = 256

export interface ViewParts {
  readonly job: Job
  readonly state: RunState
  readonly history: RunHistory
  readonly present: Iterable<Presence>
  readonly refusals: Readonly<Record<string, number>>
  readonly relay: RunView['relay']
  readonly audit: RunView['audit']
  /** why nothing leaves, or undefined */
  readonly trouble: string | undefined
  readonly wait: WaitView | null
  readonly coordinators: RunView['coordinators'] | undefined
  /** ms since the epoch */
  readonly now: number
  readonly processStartedAt: number
}

/**
 * Who looks at a run. The owner sees adapters by name, members their vendor, strangers of a job that is not public
 * totals.
 */
export type Reader = 'owner' | 'member' | 'stranger'

/** What of a view this reader may see. */
export function viewFor(reader: Reader, view: RunView): RunView {
  if (reader === 'owner') return view
  if (reader === 'stranger') return totalsOf(withoutReference(view))
  const wait = view.wait && withoutNames(view.wait)
  return {
    ...withoutReference(view),
    wait,
    reason: view.wait !== null && wait !== null && view.reason === waitText(view.wait) ? waitText(wait) : view.reason,
    members: view.members.map((member) => ({
      ...member,
      adapter: member.adapter && { ...member.adapter, name: member.adapter.vendor },
    })),
  }
}

function withoutReference(view: RunView): RunView {
  const { reference: _, ...job } = view.job
  return { ...view, job }
}

/** What belongs to one job is shown on no other job's page. */
function withoutNames({ elsewhere, ...wait }: WaitView): WaitView {
  return { ...wait, elsewhere: elsewhere.map((other) => ({ ...other, job: null })) }
}

/** Reasons name members, so they are left out, too. */
function totalsOf(view: RunView): RunView {
  const exchange = view.exchange && { ...view.exchange, reason: '' }
  return {
    ...view,
    detail: 'totals',
    reason: '',
    modeReason: '',
    exchange,
    ...(view.encoding && { encoding: { ...view.encoding, reason: '' } }),
    wait: null,
    members: [],
    departed: [],
    refusals: {},
    audit: { ...view.audit, last: null },
    exportPath: null,
  }
}

export function runView(parts: ViewParts): RunView {
  const { job, state, history, relay, refusals, now } = parts
  const { samplesCommitted } = history
  const committed = committedOf(parts)
  const expected = samplesExpected(job, committed)
  const present = [...parts.present].filter((presence) => presence.job() === job.id)
  const samplesPerSecond = state.finished === undefined ? speedOf(history.steps, now, parts.processStartedAt) : 0
  return {
    job: {
      ...describeJob(job),
      blocksPerEpoch: blocksIn(state, shownEpoch(state)),
      epochs: areEpochsBounded(state.config.epochs) ? state.config.epochs : null,
    },
    phase: phaseOf(parts),
    reason: reasonOf(parts),
    paused: history.state.paused,
    mode: state.mode,
    modeReason: modeReason(state),
    modeEpoch: state.modeEpoch,
    exchange: state.phase.type === 'ring' ? state.phase.exchange : null,
    ...encodingView(state),
    ...crowdOf(state),
    generation: state.generation,
    version: history.version,
    epoch: shownEpoch(state),
    queue: queueOf(state),
    validationQueue: validationQueueOf(state),
    detail: 'whole',
    wait: parts.wait,
    memberCount: present.length,
    members: listed(state.phase.type === 'ring' ? state.phase.members : [], present).map((presence) =>
      memberView(state, presence.member()),
    ),
    departed: history.departed,
    samplesCommitted,
    samplesExpected: expected,
    samplesPerSecond,
    etaSeconds: secondsLeft(job, { ...committed, expected }, samplesPerSecond),
    ...forecastView(parts, (speed) => secondsLeft(job, { ...committed, expected }, speed)),
    ...scalingOf(history),
    lastStep: history.lastStep ?? null,
    lastValidation: history.lastValidation ?? null,
    best: bestView(history.state),
    checkpoint: checkpointOf(state),
    relay,
    audit: parts.audit,
    refusals,
    startedAt: history.startedAt ?? job.submittedAt,
    finishedAt: history.finishedAt ?? null,
    exportPath: checkpointOf(state) === null ? null : pathTo(ROUTES.export, { id: job.id }),
    ...(parts.coordinators === undefined ? {} : { coordinators: parts.coordinators }),
  }
}

function forecastView(
  { state }: ViewParts,
  left: (samplesPerSecond: number) => number | null,
): Pick<RunView, 'forecast'> {
  const { made } = state.forecast
  if (made === undefined || state.finished !== undefined) return {}
  const samplesPerSecond = forecastSpeed(made)
  const { members, computeMs, exchangeMs } = made
  return { forecast: { members, samplesPerSecond, etaSeconds: left(samplesPerSecond), computeMs, exchangeMs } }
}

function encodingView({ config, encoding: { choice } }: RunState): Pick<RunView, 'encoding'> {
  if (config.encodings === undefined) return {}
  return { encoding: { type: choice.encoding, reason: choice.reason } }
}

function crowdOf(state: RunState): Pick<RunView, 'crowd'> {
  const crowd = crowdView(state)
  return crowd === undefined ? {} : { crowd }
}

function scalingOf({ state, version }: RunHistory): Pick<RunView, 'scaling'> {
  const scaling = state.chain.record(version.v)?.scaling
  return scaling === undefined ? {} : { scaling }
}

function reasonOf({ state, history, trouble, wait }: ViewParts): string {
  if (trouble !== undefined) return trouble
  if (state.phase.type !== 'waiting') return state.phaseReason
  if (history.state.paused) return OWNER_PAUSED
  return wait === null ? state.phaseReason : waitText(wait)
}

function committedOf({ state, history }: ViewParts): Committed {
  const { finishedAt, samplesCommitted } = history
  return {
    samples: samplesCommitted,
    epochs: state.config.epochs,
    trainedMs: trainedMs(state),
    appended: state.appended,
    steps: state.chain.head.v,
    stepSamples: history.lastStep?.samples,
    endedEarly: finishedAt !== undefined && currentEpoch(state) < state.config.epochs,
  }
}

function bestView({ evaluations, config }: RunState): RunView['best'] {
  const { metric = 'loss' } = config.stop
  const best = bestOf(evaluations, metric)
  if (best === undefined) return null
  const { version, loss, accuracy } = best
  return { ...version, metric, value: measuredValue(best, metric), loss, accuracy }
}

function describeJob({ id, spec, form, manifest, words, training, frozen }: Job): RunView['job'] {
  const { name, owner, purpose, reference, stop, evaluate = {}, blockSamples, batchBlocks, priority = 0 } = spec
  const { volunteers, weakScaling } = spec
  const sum = (shards: readonly { readonly bytes: number }[]) => shards.reduce((all, { bytes }) => all + bytes, 0)
  const writes = writingOf({ form, manifest, words })
  return {
    requires: requirementsOf(spec),
    ...(reference === undefined ? {} : { reference }),
    priority,
    volunteers: { min: volunteers?.min ?? 1, max: volunteers?.max ?? null },
    id,
    name,
    owner,
    purpose,
    epochs: stop.epochs ?? null,
    stop,
    evaluate,
    metrics: [...metricsOfModel(form.spec)],
    blockSamples,
    batchBlocks,
    ...(weakScaling === undefined ? {} : { weakScaling }),
    model: form.spec.name,
    ...modelSize(form.spec),
    dataset: manifest.name,
    trainSamples: samplesIn(manifest.train),
    validationSamples: samplesIn(manifest.validation),
    downloadBytes: sum([...manifest.train, ...manifest.validation, ...frozen]),
    ...(frozen.length === 0 ? {} : { baseBytes: sum(frozen) }),
    ...(writes === undefined ? {} : { writes }),
    blocksPerEpoch: training.length,
  }
}

/** Whether its model goes on with a text, and its file says how tokens are read. */
function writingOf({ form: { spec }, manifest, words }: Pick<Job, 'form' | 'manifest' | 'words'>) {
  const { vocabulary, tokens } = manifest
  const isRead = vocabulary !== undefined || tokens === 'bytes' || words.tokenizer !== undefined
  if (!isRead || !takesTokens(spec) || outputShape(spec).length !== 2) return undefined
  return words.chat?.template === undefined ? 'text' : 'chat'
}

function phaseOf({ state, history }: ViewParts): Phase {
  switch (state.phase.type) {
    case 'finished': // shown when it is durable
      return history.finishedAt === undefined ? 'validating' : 'finished'
    case 'form':
      return 'forming'
    case 'settle':
      return 'handover'
    case 'ring':
    case 'async':
      return validating(state) ? 'validating' : state.phase.type
    default:
      return state.phase.type
  }
}

function validating(state: RunState): boolean {
  const { chain, validated } = state
  const done = validated.get(chain.head.id)?.size ?? 0
  return state.validation.now?.version.id === chain.head.id && done < validationBlocks(state)
}

/** The last one when there is none left. */
function shownEpoch(state: RunState): number {
  return Math.min(currentEpoch(state), state.config.epochs - 1)
}

function queueOf(state: RunState): RunView['queue'] {
  const epoch = shownEpoch(state)
  const done = state.chain.doneIn(epoch)
  const quarantined = [...state.quarantined].filter(
    (block) => block.startsWith(`${epoch}:`) && !state.chain.isDone(block),
  ).length
  const planned =
    state.phase.type === 'ring' ? [...state.phase.planned.values()].reduce((sum, blocks) => sum + blocks.length, 0) : 0
  const pending = planned + state.leases.size
  return { todo: Math.max(0, blocksIn(state, epoch) - done - pending - quarantined), pending, done, quarantined }
}

function validationQueueOf({ validation, validated, chain, config }: RunState): RunView['validationQueue'] {
  const done = validated.get(chain.head.id)?.size ?? 0
  const { now } = validation
  const leased = now?.version.id === chain.head.id ? [...now.leases.values()] : []
  const pending = new Set(leased.flatMap((own) => [...own.keys()])).size
  return { todo: Math.max(0, config.validationBlocks - done - pending), pending, done }
}

/** Those of the ring come first, then those who came first. */
export function listed<T extends Pick<MemberView, 'id'>>(
  ring: readonly MemberId[],
  present: readonly T[],
): readonly T[] {
  if (present.length <= LISTED_MEMBERS) return present
  const isIn = new Set(ring)
  const others = present.filter(({ id }) => !isIn.has(id))
  return [...present.filter(({ id }) => isIn.has(id)), ...others].slice(0, LISTED_MEMBERS)
}

/** Written out: V8 keeps a spread of so many fields as a table, which takes ten times the memory. */
function memberView(state: RunState, presence: PresentMember): MemberView {
  const { id, name, client, adapter, activity, samplesPerSecond, bytesSent, bytesReceived, joinedAt } = presence
  const { phase } = state
  const rank = phase.type === 'ring' ? phase.members.indexOf(id) : -1
  return {
    id,
    name,
    client,
    adapter,
    activity,
    samplesPerSecond,
    bytesSent,
    bytesReceived,
    tcpLinks: presence.tcpLinks.filter((other) => phase.type === 'ring' && phase.members.includes(other)),
    joinedAt,
    state: memberState(state, id),
    rank: rank < 0 ? null : rank,
    fraction: fractionAt(state, rank),
    hidden: state.members.get(id)?.hidden ?? false,
    leaseMs: leaseMs(state, id),
    relayed: phase.type === 'ring' && isRelayedFrom(rank, phase),
  }
}

/** A link is shown with the place that it leads on from. */
function isRelayedFrom(
  rank: number,
  { members, relayed, exchange }: Extract<RunState['phase'], { type: 'ring' }>,
): boolean {
  const next = (rank + 1) % members.length
  return relayed.some(
    ([a, b]) => (a === rank && EXCHANGES[exchange.type].sends(a, b, members.length)) || (b === rank && a === next),
  )
}

/** Of the step in flight: speeds that changed since are in the next plan. */
function fractionAt({ phase, chain }: RunState, rank: number): number | null {
  if (phase.type !== 'ring') return null
  const weights = phase.planWeights.get(chain.head.v + 1) ?? phase.weights
  const fraction = weights[rank]
  return fraction === undefined ? null : fraction / weights.reduce((sum, one) => sum + one, 0)
}

function memberState({ phase, members, leases }: RunState, id: MemberId): MemberView['state'] {
  if (!members.has(id)) return 'joining'
  if (phase.type === 'form') return phase.members.includes(id) && !phase.confirmed.has(id) ? 'learning' : 'idle'
  if (phase.type === 'ring') return phase.members.includes(id) ? 'training' : 'idle'
  if (phase.type !== 'async') return 'idle'
  const granted = members.get(id)?.granted?.blocks ?? []
  return granted.some((block) => leases.get(block)?.holder === id) ? 'training' : 'idle'
}

function checkpointOf(state: RunState): RunView['checkpoint'] {
  const newest = state.checkpoints.at(-1)
  if (newest?.blob === undefined) return null
  const { version, bytes, at, witnessed, agreeing, members } = newest
  return { ...version, bytes, at, witnessed, agreeing, members }
}
