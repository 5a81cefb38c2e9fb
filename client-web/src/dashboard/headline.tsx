// The run in one glance: what it is, how far, how fast, how good.
import {
  membersText,
  METRICS,
  metricText,
  type Phase,
  type RunView,
  type ValidationPoint,
} from '@starling-grid/protocol'
import type { ComponentChildren } from 'preact'
import { count, duration, loss, percent, plural, rate } from '../format.ts'
import type { PageHistory } from '../live/run-history.ts'
import { metricsShown } from './metric.ts'

const PHASE_WORDS: Readonly<Record<Phase, string>> = {
  waiting: 'Waiting for volunteers',
  freeze: 'Agreeing on a version',
  forming: 'Forming a ring',
  ring: 'Training in a ring',
  handover: 'Moving the version to the coordinator',
  async: 'Training through the coordinator',
  validating: 'Validating',
  lost: 'Waiting for a member with the newest version',
  finished: 'Finished',
}

export function Headline(props: { readonly run: RunView }) {
  const { job, phase, reason } = props.run
  return (
    <section class="headline">
      <div>
        <h1>{job.name}</h1>
        <p class="soft">
          {job.model}, {count(job.parameters)} parameters, on {job.dataset}. For {job.owner}.
        </p>
      </div>
      <p class="phase" data-phase={phase}>
        <b>{PHASE_WORDS[phase]}</b>
        <span>{reason}</span>
      </p>
    </section>
  )
}

export function Figures(props: { readonly history: PageHistory; readonly run: RunView }) {
  const { run, history } = props
  const validation = history.validations.at(-1)
  const last = history.steps.at(-1)
  return (
    <dl class="figures">
      <Progress run={run} />
      <Figure term="Speed" note={speedNote(run)}>
        {rate(run.samplesPerSecond)}
      </Figure>
      <Figure term="Loss" note={last === undefined ? 'before the first step' : `at step ${count(last.v)}`}>
        {loss(last === undefined ? null : last.loss)}
      </Figure>
      {metricsShown(run.job).map(({ metric, format, ofValidation }) => (
        <Figure key={metric} term={`Validation ${METRICS[metric].name}`} note={validationNote(validation, run.best)}>
          {figureText(validation === undefined ? undefined : ofValidation(validation), format)}
        </Figure>
      ))}
      <Figure
        term="Members"
        note={run.departed.length === 0 ? 'none has left' : `${plural(run.departed.length, 'has', 'have')} left`}
      >
        {membersText(run)}
      </Figure>
    </dl>
  )
}

/** Some validations do not define a metric: R² of values that are all alike. */
function figureText(value: number | undefined, format: (value: number) => string): string {
  if (value === undefined) return 'not yet'
  return Number.isNaN(value) ? 'not defined' : format(value)
}

/** One member's word is shown as what it is. */
export function validationNote(point: ValidationPoint | undefined, best: RunView['best'] = null): string {
  if (point === undefined) return 'after the first epoch'
  const doubt = point.confirmed ? '' : ', unconfirmed: no two members measured the same'
  const better = best === null || best.v === point.v ? '' : `; best ${bestText(best)}`
  return `of version ${count(point.v)}${doubt}${better}`
}

function bestText({ v, metric, value }: NonNullable<RunView['best']>): string {
  return `${metricText(METRICS[metric].name, value)} of version ${count(v)}`
}

function Progress(props: { readonly run: RunView }) {
  const { samplesCommitted, samplesExpected } = props.run
  const fraction = samplesExpected > 0 ? samplesCommitted / samplesExpected : 0
  return (
    <div class="progress">
      <dt>Progress</dt>
      <dd>
        {percent(fraction)}
        <progress max={1} value={Math.min(1, fraction)} aria-label="Progress of the run" />
        <small>
          {count(samplesCommitted)} of {count(samplesExpected)} samples{timeLeft(props.run)}
        </small>
      </dd>
    </div>
  )
}

function timeLeft({ finishedAt, startedAt, etaSeconds, forecast }: RunView): string {
  if (finishedAt !== null) return `, took ${duration((finishedAt - startedAt) / 1000)}`
  const measured = etaSeconds === null ? '' : `, about ${duration(etaSeconds)} left`
  const foreseen = forecast?.etaSeconds ?? null
  return foreseen === null ? measured : `${measured} (forecast ${duration(foreseen)})`
}

/** What was expected of these members stands beside what they do. */
function speedNote({ forecast }: RunView): string {
  return forecast === undefined ? 'samples/s, all members' : `samples/s; forecast ${rate(forecast.samplesPerSecond)}`
}

function Figure(props: { readonly term: string; readonly note: string; readonly children: ComponentChildren }) {
  return (
    <div>
      <dt>{props.term}</dt>
      <dd>
        {props.children}
        <small>{props.note}</small>
      </dd>
    </div>
  )
}
