// The contribute page: what is computed and for which owner, one button, and then what this device adds.
import type { RunView } from '@starling-grid/protocol'
import { RingPicture } from '../flock/ring-picture.tsx'
import { plural } from '../format.ts'
import type { LiveRun } from '../live/live-run.ts'
import { Masthead } from '../masthead.tsx'
import { Action } from './action.tsx'
import { CoordinatorNotice } from './coordinator-notice.tsx'
import { JobFacts } from './job-facts.tsx'
import { refusalAtSight, type Surroundings } from './refusal.ts'
import type { Session } from './session.ts'

export interface ContributePageProps {
  readonly run: LiveRun
  readonly session: Session
  readonly here: Surroundings
}

export function ContributePage(props: ContributePageProps) {
  const { run: view, noRun } = props.run.history.value
  return (
    <div class="page contribute">
      <Masthead at="/" />
      <main>
        <div class="column">
          <section class="pitch">
            <p class="eyebrow">{eyebrow(view, noRun)}</p>
            <h1>{view === null ? 'Many small machines, one network' : view.job.name}</h1>
            <p class="purpose">{view?.job.purpose ?? explanation(noRun)}</p>
            <Action run={props.run} session={props.session} here={props.here} />
            <CoordinatorNotice live={props.run} session={props.session} />
          </section>
          {view !== null && <JobFacts run={view} />}
        </div>
        <div class="column">
          <RingPicture run={view} self={props.session.self.value} />
          {refusalAtSight(props.here)?.again !== false && <Promises />}
        </div>
      </main>
    </div>
  )
}

function eyebrow(run: RunView | null, noRun: string | null): string {
  if (run === null) return noRun === null ? 'Asking the coordinator …' : 'No job is running'
  if (run.finishedAt !== null) return 'This run is finished'
  const others = run.memberCount
  return others === 0 ? 'Waiting for its first volunteer' : `${plural(others, 'volunteer')} training now`
}

function explanation(noRun: string | null): string {
  const what = 'Starling trains a neural network on the devices of people who lend them.'
  return noRun === null ? what : `${what} You can join now; work begins with the next job.`
}

function Promises() {
  return (
    <section class="promises" aria-label="What lending means">
      <h2>What lending means</h2>
      <ul>
        <li>
          This tab computes on your graphics processor. Nothing is installed, and nothing else on this device is read.
        </li>
        <li>You receive data and a description of the model, never foreign code.</li>
        <li>
          Other volunteers in the ring see your network address, as in a video call, unless you hide it under Limits.
        </li>
        <li>
          The coordinator is told which computing methods are fast on your kind of graphics processor, so that others
          with the same kind start sooner; not while your address is hidden.
        </li>
        <li>
          Close the tab or press Stop whenever you like: counted samples stay counted, and other volunteers compute the
          rest.
        </li>
      </ul>
    </section>
  )
}
