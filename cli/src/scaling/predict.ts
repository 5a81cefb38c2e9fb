// Runs one setting on virtual time and says what it came to.
import { noiseScale, roundLengthMs } from '@starling-grid/coordinator/run'
import { type MemberId, random32, type VersionRef } from '@starling-grid/protocol'
import { EventClock } from './clock.ts'
import { ModelCoordinator, type ModelLearner } from './coordinator.ts'
import { Rings } from './rings.ts'
import type { Forecast, ScalePrediction, Setting } from './setting.ts'
import { type ScaleModel, ModelVolunteer } from './volunteers.ts'

export type { ModelLearner } from './coordinator.ts'
export type { FetchedShards, Forecast, ScalePrediction, Setting } from './setting.ts'

const MINUTE_MS = 60_000
/** ms between looks at the mode */
const SAMPLE_MS = 500
/** ms in which the volunteers of the start arrive */
const ARRIVAL_MS = 10_000
/** Commits that a forecast sees before it takes their rate for that of the rest of the training. */
const COMMITS = 200
/** Steps may take minutes: after this many virtual ms fewer commits do. */
const LONG_MS = 900_000
const FEWEST_COMMITS = 10
/** Times a round that is waited for those that were under way when the measurement ended. */
const ROUNDS_AFTER = 1.5

interface OpenScaleModel extends ScaleModel {
  /** virtual ms of the first computation; undefined before */
  readonly beganAt: () => number | undefined
}

/** @example predict({ ...LENET, volunteers: 200, churnPerMinute: 0.2 }) */
export function predict(setting: Setting): ScalePrediction {
  const model = openModel(setting)
  model.clock.runUntil(1000 * setting.warmUpSeconds)
  return measure(model)
}

/**
 * A whole training of this many samples, from its first computation. After `warmUpSeconds` and `seconds` of it, and
 * COMMITS commits or a long time, its second half so far is taken for all that follows.
 */
export function forecast(setting: Setting, samples: number): Forecast {
  const model = openModel(setting)
  const { clock, coordinator } = model
  const looks = new Looks(model)
  const leastMs = 1000 * (setting.warmUpSeconds + setting.seconds)
  const mostMs = leastMs * COMMITS
  const isSeen = (): boolean => {
    const enough = clock.now >= LONG_MS ? FEWEST_COMMITS : COMMITS
    return clock.now >= leastMs && coordinator.commits.length >= enough
  }
  while (coordinator.samples < samples && !isSeen() && clock.now < mostMs) {
    clock.runUntil(clock.now + SAMPLE_MS)
    looks.look()
  }
  const began = model.beganAt() ?? 0
  const [first, last] = [coordinator.commits[0]?.at ?? Number.POSITIVE_INFINITY, endOf(coordinator.commits, samples)]
  const watched = Math.min(clock.now, last) - began
  const part = (last - began) / Math.max(watched, 1)
  const largest = (of: (volunteer: ModelVolunteer) => number): number =>
    part * Math.max(0, ...[...model.volunteers.values()].map(of))
  return {
    ...looks.seen(),
    seconds: (last - began) / 1000,
    secondsAfterFirst: (last - first) / 1000,
    samplesPerSecond: (1000 * samples) / (last - began),
    ballotsPerMinute: (coordinator.ballots * MINUTE_MS) / Math.max(clock.now, 1),
    bytesUp: largest(({ bytesUp }) => bytesUp),
    bytesDown: largest(({ bytesDown }) => bytesDown),
  }
}

/** Virtual ms at which so many samples are committed: seen, or by the rate of the second half of what was seen. */
function endOf(commits: ModelCoordinator['commits'], samples: number): number {
  const seen = commits.find((commit) => commit.samples >= samples)
  if (seen !== undefined) return seen.at
  const [from, to] = [commits[Math.floor(commits.length / 2)], commits.at(-1)]
  if (from === undefined || to === undefined || to.samples === from.samples) return Number.POSITIVE_INFINITY
  return to.at + ((samples - to.samples) * (to.at - from.at)) / (to.samples - from.samples)
}

/** What is learned beside the model, until it is good enough. */
export interface ModelLearning extends ModelLearner {
  readonly isOver: boolean
  /** all that was begun is computed; norms of the versions that were made since */
  settle(): Promise<readonly { readonly version: VersionRef; readonly norm: number }[]>
}

export interface LearnedRun {
  readonly volunteers: number
  /** virtual ms of the first computation */
  readonly beganAt: number
  readonly samples: number
  readonly versions: number
  /** virtual ms that a member computes, of its rounds that were taken, on average; and from its grant to its push */
  readonly computeMs: number
  readonly roundMs: number
  /** samples of a version beyond which more save few versions; undefined: not measured */
  readonly noiseScale: number | undefined
  /** as the run's page says it */
  readonly reason: string
}

/** Virtual ms in which nothing is pushed that was granted in them: less than a line's latency. */
const SETTLE_MS = 5

/**
 * The model with real arithmetic beside it: what members learn is computed, and how long that takes follows from their
 * speed. Ends when the learning is over, or after `seconds`.
 */
export async function learnOn(setting: Setting, learning: ModelLearning): Promise<LearnedRun> {
  const model = openModel(setting, learning)
  const { clock, coordinator } = model
  while (!learning.isOver && clock.now < 1000 * setting.seconds) {
    clock.runUntil(clock.now + SETTLE_MS)
    for (const made of await learning.settle()) coordinator.feed({ type: 'server-closed', ...made })
  }
  const { rounds, samples, state } = coordinator
  const mean = (of: (round: (typeof rounds)[number]) => number): number =>
    rounds.reduce((sum, round) => sum + of(round), 0) / Math.max(1, rounds.length)
  const [speed = 1] = setting.machines.samplesPerSecond
  return {
    volunteers: setting.volunteers,
    beganAt: model.beganAt() ?? 0,
    samples,
    versions: state.chain.head.v,
    computeMs: setting.stepMs + (1000 * mean((round) => round.samples)) / speed,
    roundMs: mean(({ from, to }) => to - from),
    noiseScale: noiseScale(state.crowd.estimate),
    reason: state.phaseReason,
  }
}

function openModel(setting: Setting, learner?: ModelLearner): OpenScaleModel {
  const clock = new EventClock()
  const words = random32(setting.seed)
  const random = (): number => words() / 2 ** 32
  const volunteers = new Map<MemberId, ModelVolunteer>()
  const coordinator = new ModelCoordinator(
    clock,
    setting,
    {
      hear: (member, message) => volunteers.get(member)?.hear(message),
      dismissed: (member) => volunteers.get(member)?.gone('it left'),
    },
    learner,
  )
  let beganAt: number | undefined
  const onWork = (): void => {
    beganAt ??= clock.now
  }
  const rings = new Rings(clock, setting, volunteers)
  const present = new Present()
  const onGone = (volunteer: ModelVolunteer): void => present.remove(volunteer)
  const all: ScaleModel = { clock, setting, coordinator, rings, volunteers, random, onWork, onGone }
  let number = 0
  const arrive = (samplesPerSecond: number): void => {
    const volunteer = new ModelVolunteer(all, number++, samplesPerSecond)
    volunteers.set(volunteer.id, volunteer)
    present.add(volunteer)
  }
  for (let i = 0; i < setting.volunteers; i++) {
    const { samplesPerSecond } = setting.machines
    clock.after(ARRIVAL_MS * random(), () => arrive(samplesPerSecond[i % samplesPerSecond.length] ?? 1))
  }
  clock.after(ARRIVAL_MS, () => churn({ all, present, forget: (id) => volunteers.delete(id), arrive }))
  return { ...all, beganAt: () => beganAt }
}

interface Restless {
  readonly all: ScaleModel
  readonly present: Present
  forget(id: MemberId): void
  arrive(samplesPerSecond: number): void
}

/** Departures at random instants, at the rate of the setting; for each a newcomer with a machine of the same kind. */
function churn(restless: Restless): void {
  const { all, present, forget, arrive } = restless
  const perMs = (all.setting.churnPerMinute * all.setting.volunteers) / MINUTE_MS
  if (perMs === 0) return
  all.clock.after(-Math.log(1 - all.random()) / perMs, () => {
    const chosen = present.at(all.random())
    chosen?.go(all.random() < 0.5)
    for (const { id } of present.takeGone()) forget(id)
    if (chosen !== undefined) arrive(chosen.samplesPerSecond)
    churn(restless)
  })
}

/** Volunteers that are here, as they came, and those that went lately: one of ten thousand goes every few ms. */
class Present {
  readonly #here: ModelVolunteer[] = []
  #gone: ModelVolunteer[] = []

  add(volunteer: ModelVolunteer): void {
    this.#here.push(volunteer)
  }

  remove(volunteer: ModelVolunteer): void {
    const place = this.#here.indexOf(volunteer)
    if (place >= 0) this.#here.splice(place, 1)
    this.#gone.push(volunteer)
  }

  /** `part` below 1: which one, of all that are here */
  at(part: number): ModelVolunteer | undefined {
    return this.#here[Math.floor(part * this.#here.length)]
  }

  /** Since this was asked last. */
  takeGone(): readonly ModelVolunteer[] {
    return this.#gone.splice(0)
  }
}

/** What phase the run is in, now and then. */
class Looks {
  readonly #coordinator: ModelCoordinator
  #looks = 0
  #ring = 0
  #members = 0
  #direct = 0

  constructor({ coordinator }: ScaleModel) {
    this.#coordinator = coordinator
  }

  look(): void {
    const { phase } = this.#coordinator.state
    this.#looks++
    if (phase.type !== 'ring') return
    this.#ring++
    this.#members += phase.members.length
    this.#direct += Number(phase.exchange.type === 'direct')
  }

  seen(): Pick<ScalePrediction, 'ringShare' | 'ringSize' | 'directShare' | 'mode'> {
    return {
      ringShare: this.#looks === 0 ? 0 : this.#ring / this.#looks,
      ringSize: this.#ring === 0 ? 0 : this.#members / this.#ring,
      directShare: this.#ring === 0 ? 0 : this.#direct / this.#ring,
      mode: this.#coordinator.state.mode,
    }
  }
}

function measure(model: ScaleModel): ScalePrediction {
  const { clock, coordinator, setting } = model
  const began = clock.now
  const { samples, cpuMs, bytes, ballots } = coordinator
  const looks = new Looks(model)
  while (clock.now - began < 1000 * setting.seconds) {
    clock.runUntil(clock.now + SAMPLE_MS)
    looks.look()
  }
  const seconds = (clock.now - began) / 1000
  const measured = {
    ballotsPerMinute: ((coordinator.ballots - ballots) * 60) / seconds,
    coordinatorCores: (coordinator.cpuMs - cpuMs) / (1000 * seconds),
    coordinatorBytesPerSecond: (coordinator.bytes - bytes) / seconds,
  }
  const learned =
    setting.async.groups === undefined
      ? { samples: coordinator.samples - samples, weight: 1 }
      : learnedIn(model, { began, ended: clock.now })
  const { shards } = coordinator.data
  return {
    ...looks.seen(),
    ...measured,
    samplesPerSecond: learned.samples / seconds,
    weight: learned.weight,
    ...(shards === undefined ? {} : { shards }),
  }
}

/**
 * Of rounds whose push was taken, the part that was computed in this time. Rounds of minutes, which all end at about
 * the same time, fit into no fixed time: commits before and after it would count by chance.
 */
function learnedIn(
  { clock, coordinator }: ScaleModel,
  { began, ended }: { readonly began: number; readonly ended: number },
): { readonly samples: number; readonly weight: number } {
  clock.runUntil(ended + ROUNDS_AFTER * roundLengthMs(coordinator.state))
  let [learned, weighed] = [0, 0]
  for (const { from, to, samples, weight } of coordinator.rounds) {
    const inside = Math.max(0, Math.min(to, ended) - Math.max(from, began))
    const part = (samples * inside) / Math.max(to - from, 1)
    learned += part
    weighed += weight * part
  }
  return { samples: learned, weight: learned === 0 ? 1 : weighed / learned }
}
