// The one thing to do next: start, watch and stop, or what to do about a refusal.
import { type JobId, MAX_NAME_LENGTH } from '@starling-grid/protocol'
import { useState } from 'preact/hooks'
import type { LiveRun } from '../live/live-run.ts'
import { askedJob } from '../live/open-jobs.ts'
import { Contribution } from './contribution.tsx'
import { JobChoice } from './job-choice.tsx'
import { LimitsForm } from './limits-form.tsx'
import { type Refusal, refusalAtSight, refusalOf, type Surroundings } from './refusal.ts'
import type { Session, SessionState } from './session.ts'
import { StatusLine } from './status-line.tsx'
import { rememberedLimits, rememberLimits, type VisitorLimits } from './visitor-limits.ts'
import { rememberedName, rememberName } from './visitor-name.ts'

const START_LABEL: Readonly<Record<Exclude<SessionState, Busy>['type'], string>> = {
  idle: 'Lend this GPU',
  ended: 'Lend it again',
  failed: 'Try again',
}

export interface ActionProps {
  readonly run: LiveRun
  readonly session: Session
  readonly here: Surroundings
}

export function Action(props: ActionProps) {
  const { run, session, here } = props
  const state = session.state.value
  const refusal = refusalAtSight(here) ?? refusalAfter(state, here)
  return (
    <div class={`action ${state.type}`}>
      {refusal !== null && <RefusalNote refusal={refusal} />}
      <StatusLine state={state} />
      {isBusy(state) ? (
        <Contribution state={state} onStop={() => session.stop()} />
      ) : (
        (refusal?.again ?? true) && <StartForm run={run} session={session} label={START_LABEL[state.type]} />
      )}
    </div>
  )
}

type Busy = Extract<SessionState, { type: 'running' | 'stopping' }>

function isBusy(state: SessionState): state is Busy {
  return state.type === 'running' || state.type === 'stopping'
}

function refusalAfter(state: SessionState, here: Surroundings): Refusal | null {
  return state.type === 'failed' ? refusalOf(state.failure.code, state.failure.message, here.browser) : null
}

function RefusalNote(props: { readonly refusal: Refusal }) {
  const { reason, cause, nextStep } = props.refusal
  return (
    <div class="notice" role="alert" data-reason={reason}>
      <p class="cause">{cause}</p>
      <p class="next-step">{nextStep}</p>
    </div>
  )
}

interface StartFormProps {
  readonly run: LiveRun
  readonly session: Session
  readonly label: string
}

function StartForm(props: StartFormProps) {
  const [name, setName] = useState(rememberedName)
  const [limits, setLimits] = useState(rememberedLimits)
  const [job, setJob] = useState(() => askedJob(location.search))
  const choose = (changed: VisitorLimits): void => {
    setLimits(changed)
    rememberLimits(changed)
  }
  const chooseJob = (chosen: JobId | undefined): void => {
    setJob(chosen)
    props.run.show(chosen)
  }
  const start = (event: SubmitEvent): void => {
    event.preventDefault()
    props.session.start({ name: rememberName(name), limits, job })
  }
  return (
    <form class="start" onSubmit={start}>
      <button type="submit" class="primary" data-primary>
        {props.label}
      </button>
      <label class="visitor-name">
        <span>as</span>
        <input
          value={name}
          maxLength={MAX_NAME_LENGTH}
          autocomplete="off"
          aria-label="Name that others see"
          onInput={(event) => setName(event.currentTarget.value)}
        />
      </label>
      <JobChoice job={job} onChange={chooseJob} />
      <LimitsForm limits={limits} onChange={choose} />
    </form>
  )
}
