// The dashboard: everything that is known of the run, live.
import {
  crowdText,
  encodingText,
  forecastText,
  ROUTES,
  type RunView,
  scalingText,
  type StepPoint,
} from '@starling-grid/protocol'
import { useState } from 'preact/hooks'
import { RingPicture } from '../flock/ring-picture.tsx'
import { bytes, loss, plural } from '../format.ts'
import type { LiveRun } from '../live/live-run.ts'
import type { PageHistory } from '../live/run-history.ts'
import { Masthead } from '../masthead.tsx'
import { WritePanel } from '../write/write-panel.tsx'
import { ChartControls, type ChartControlsProps } from './chart-controls.tsx'
import { Curve, type CurveProps } from './curve.tsx'
import { Events } from './events.tsx'
import { Figures, Headline } from './headline.tsx'
import { JobSwitch } from './job-switch.tsx'
import { LinkNotice } from './link-notice.tsx'
import { Departed, Members } from './members.tsx'
import { metricsShown } from './metric.ts'
import { Refusals, Versions } from './versions.tsx'
import { formatView, parseView, type ViewState } from './view-state.ts'
import { WorkQueue } from './work-queue.tsx'

const lossOf = (point: StepPoint): number => point.loss

export function DashboardPage(props: { readonly live: LiveRun }) {
  const [frozen, setFrozen] = useState<PageHistory | null>(null)
  const newest = props.live.history.value
  const history = frozen ?? newest
  return (
    <div class="page dashboard">
      <Masthead at={ROUTES.dashboard} />
      <LinkNotice live={props.live} />
      <main>
        {history.run === null ? (
          <NoRun reason={history.noRun} />
        ) : (
          <Run
            history={history}
            run={history.run}
            token={props.live.token.value}
            frozen={frozen !== null}
            onFreeze={() => setFrozen(frozen === null ? newest : null)}
          />
        )}
      </main>
    </div>
  )
}

interface RunProps {
  readonly history: PageHistory
  readonly run: RunView
  readonly token: string | undefined
  readonly frozen: boolean
  readonly onFreeze: () => void
}

function Run(props: RunProps) {
  const { history, run } = props
  const view = useView()
  return (
    <>
      <JobSwitch shown={run.job.id} token={props.token} />
      <Headline run={run} />
      <Figures history={history} run={run} />
      {run.job.writes !== undefined && <WritePanel run={run} token={props.token} />}
      <div class="columns">
        <div>
          <div class="toolbar">
            <ChartControls {...view} />
            <button type="button" class="quiet" aria-pressed={props.frozen} onClick={props.onFreeze}>
              {props.frozen ? 'Resume updates' : 'Pause updates'}
            </button>
          </div>
          <Curve chart="loss" title="Training loss" history={history} value={lossOf} format={loss} {...view} />
          <MetricCurve history={history} job={run.job} {...view} />
        </div>
        <div>
          <Travel run={run} />
          <WorkQueue run={run} />
        </div>
        <div>
          {run.detail === 'totals' ? (
            <OnlyTotals />
          ) : (
            <>
              <Members members={run.members} count={run.memberCount} />
              <Departed departed={run.departed} />
              <Events events={history.events} />
            </>
          )}
        </div>
        <div>
          <Versions run={run} token={props.token} />
          {run.detail === 'whole' && <Refusals refusals={run.refusals} />}
        </div>
      </div>
    </>
  )
}

/** What judges the job's versions; none where that is the loss alone. */
function MetricCurve(props: Pick<CurveProps, 'history' | 'view' | 'onView'> & { readonly job: RunView['job'] }) {
  const { history, view, onView, job } = props
  const metrics = metricsShown(job)
  const shown = metrics.find(({ metric }) => metric === view.metric) ?? metrics[0]
  if (shown === undefined) return null
  const { metric, title, format, ofStep, ofValidation } = shown
  return (
    <Curve
      key={metric}
      chart="metric"
      title={title}
      history={history}
      value={ofStep}
      mark={ofValidation}
      format={format}
      view={view}
      onView={onView}
    >
      {metrics.length > 1 && (
        <div class="switches" role="group" aria-label="Metric">
          {metrics.map((one) => (
            <button
              type="button"
              key={one.metric}
              aria-pressed={one === shown}
              onClick={() => onView({ ...view, metric: one.metric })}
            >
              {one.title}
            </button>
          ))}
        </div>
      )}
    </Curve>
  )
}

/** A job that is not public shows strangers no member by itself. */
function OnlyTotals() {
  return (
    <section class="members" aria-label="Members">
      <h2>Totals only</h2>
      <p class="soft">
        This job is not public: members, events and the model are shown to its owner, by the link to this page that was
        printed when the coordinator started.
      </p>
    </section>
  )
}

function sentence(text: string): string {
  return `${text.slice(0, 1).toUpperCase()}${text.slice(1)}.`
}

/** How gradients travel, and why that way. */
function Travel(props: { readonly run: RunView }) {
  const { run } = props
  const shape = run.exchange?.type === 'direct' ? 'Direct exchange' : 'In a ring'
  const way = { ring: shape, local: `${shape}, between local rounds`, async: 'Through the coordinator' }[run.mode]
  return (
    <section class="travel" aria-label="How gradients travel">
      <h2>{way}</h2>
      <p class="soft mode-reason">{run.modeReason}</p>
      {run.forecast !== undefined && <p class="soft">{sentence(forecastText(run.forecast))}</p>}
      {run.scaling !== undefined && <p class="soft">Batch: {scalingText(run.scaling, run.job)}.</p>}
      {run.crowd !== undefined && <p class="soft">{sentence(crowdText(run.crowd, run.memberCount))}</p>}
      {run.encoding !== undefined && <p class="soft">{sentence(encodingText(run.encoding))}</p>}
      {run.exchange !== null && <p class="soft exchange-reason">{run.exchange.reason}</p>}
      <RingPicture run={run} self={null} />
      <RelayNote relay={run.relay} />
    </section>
  )
}

/** What the coordinator carries for members that cannot reach each other. */
function RelayNote(props: { readonly relay: RunView['relay'] }) {
  const { links, bytes: carried, bytesPerSecond } = props.relay
  if (carried === 0) return null
  const now =
    links === 0
      ? 'No link goes through the coordinator now'
      : `${plural(links, 'link')} ${links === 1 ? 'goes' : 'go'} through the coordinator (dashed), ` +
        `${bytes(bytesPerSecond)} a second`
  return (
    <p class="soft relay-note">
      {now}; {bytes(carried)} so far.
    </p>
  )
}

function NoRun(props: { readonly reason: string | null }) {
  if (props.reason === null) return <p class="empty soft">Asking the coordinator …</p>
  return (
    <section class="empty">
      <h1>No job is running</h1>
      <p>{props.reason}</p>
      <p>
        In the folder of Starling, start this coordinator again with a job of your own, or train on the bundled digits:
      </p>
      <pre>npm start -- --job FILE{'\n'}npm run demo</pre>
      <p class="soft">This page shows it as soon as it begins.</p>
    </section>
  )
}

/** The view, kept in the address. */
function useView(): ChartControlsProps {
  const [view, setView] = useState(() => parseView(location.search))
  const onView = (next: ViewState): void => {
    setView(next)
    history.replaceState(null, '', `${location.pathname}${formatView(next)}`)
  }
  return { view, onView }
}
