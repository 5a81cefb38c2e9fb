// Runs one setting on virtual time and says what it came to.
import { type MemberId, random32 } from '@starling-grid/protocol'
import { EventClock } from './clock.ts'
import { ModelCoordinator } from './coordinator.ts'
import { Rings } from './rings.ts'
import type { ScalePrediction, Setting } from './setting.ts'
import { type ScaleModel, ModelVolunteer } from './volunteers.ts'

export type { ScalePrediction, Setting } from './setting.ts'

const MINUTE_MS = 60_000
/** ms between looks at the mode */
const SAMPLE_MS = 500
/** ms in which the volunteers of the start arrive */
const ARRIVAL_MS = 10_000

/** @example predict({ ...LENET, volunteers: 200, churnPerMinute: 0.2 }) */
export function predict(setting: Setting): ScalePrediction {
  const clock = new EventClock()
  const words = random32(setting.seed)
  const random = (): number => words() / 2 ** 32
  const volunteers = new Map<MemberId, ModelVolunteer>()
  const coordinator = new ModelCoordinator(clock, setting, {
    hear: (member, message) => volunteers.get(member)?.hear(message),
    dismissed: (member) => volunteers.get(member)?.gone('it left'),
  })
  const all: ScaleModel = { clock, setting, coordinator, rings: new Rings(clock, setting, volunteers), random }
  let number = 0
  const arrive = (samplesPerSecond: number): void => {
    const volunteer = new ModelVolunteer(all, number++, samplesPerSecond)
    volunteers.set(volunteer.id, volunteer)
  }
  for (let i = 0; i < setting.volunteers; i++) {
    const { samplesPerSecond } = setting.machines
    clock.after(ARRIVAL_MS * random(), () => arrive(samplesPerSecond[i % samplesPerSecond.length] ?? 1))
  }
  clock.after(ARRIVAL_MS, () => churn({ all, volunteers, arrive }))
  clock.runUntil(1000 * setting.warmUpSeconds)
  return measure(all)
}

interface Restless {
  readonly all: ScaleModel
  readonly volunteers: Map<MemberId, ModelVolunteer>
  arrive(samplesPerSecond: number): void
}

/** Departures at random instants, at the rate of the setting; for each a newcomer with a machine of the same kind. */
function churn(restless: Restless): void {
  const { all, volunteers, arrive } = restless
  const perMs = (all.setting.churnPerMinute * all.setting.volunteers) / MINUTE_MS
  if (perMs === 0) return
  all.clock.after(-Math.log(1 - all.random()) / perMs, () => {
    const present = [...volunteers.values()].filter(({ alive }) => alive)
    const chosen = present[Math.floor(all.random() * present.length)]
    chosen?.go(all.random() < 0.5)
    for (const [id, { alive }] of volunteers) if (!alive) volunteers.delete(id)
    if (chosen !== undefined) arrive(chosen.samplesPerSecond)
    churn(restless)
  })
}

function measure({ clock, coordinator, setting }: ScaleModel): ScalePrediction {
  const { samples, cpuMs, bytes, ballots } = coordinator
  let looks = 0
  let ringLooks = 0
  let ringMembers = 0
  let directLooks = 0
  for (; looks * SAMPLE_MS < 1000 * setting.seconds; looks++) {
    clock.runUntil(clock.now + SAMPLE_MS)
    const { phase } = coordinator.state
    if (phase.type !== 'ring') continue
    ringLooks++
    ringMembers += phase.members.length
    directLooks += Number(phase.exchange.type === 'direct')
  }
  return {
    samplesPerSecond: (coordinator.samples - samples) / setting.seconds,
    ringShare: ringLooks / looks,
    ringSize: ringLooks === 0 ? 0 : ringMembers / ringLooks,
    directShare: ringLooks === 0 ? 0 : directLooks / ringLooks,
    ballotsPerMinute: ((coordinator.ballots - ballots) * 60) / setting.seconds,
    coordinatorCores: (coordinator.cpuMs - cpuMs) / (1000 * setting.seconds),
    coordinatorBytesPerSecond: (coordinator.bytes - bytes) / setting.seconds,
    mode: coordinator.state.mode,
  }
}
