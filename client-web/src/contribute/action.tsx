// The one thing to do next: start, watch and stop, or what to do about a refusal.
import type { RunView } from '@starling-grid/protocol'
import { useState } from 'preact/hooks'
import { MAX_NAME_LENGTH } from '@starling-grid/protocol'
import { Contribution } from './contribution.tsx'
import { type Refusal, refusalAtSight, refusalOf, type Surroundings } from './refusal.ts'
import type { Session, SessionState } from './session.ts'
import { StatusLine } from './status-line.tsx'
import { rememberedName, rememberName } from './visitor-name.ts'

export interface ActionProps {
  readonly session: Session
  readonly here: Surroundings
  readonly run: RunView | null
}

export function Action(props: ActionProps) {
  const { session, here } = props
  const state = session.state.value
  const refusal = refusalAtSight(here) ?? refusalAfter(state, here)
  const busy = state.type === 'running' || state.type === 'stopping'
  return (
    <div class={`action ${state.type}`}>
      {refusal !== null && <RefusalNote refusal={refusal} />}
      <StatusLine state={state} />
      {busy && <Contribution state={state} run={props.run} onStop={() => session.stop()} />}
      {!busy && (refusal?.again ?? true) && <StartForm session={session} again={state.type !== 'idle'} />}
    </div>
  )
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

function StartForm(props: { readonly session: Session; readonly again: boolean }) {
  const [name, setName] = useState(rememberedName)
  const start = (event: SubmitEvent): void => {
    event.preventDefault()
    void props.session.start(rememberName(name))
  }
  return (
    <form class="start" onSubmit={start}>
      <button type="submit" class="primary" data-primary>
        {props.again ? 'Lend this GPU again' : 'Lend this GPU'}
      </button>
      <label class="visitor-name">
        <span>as</span>
        <input value={name} maxLength={MAX_NAME_LENGTH} autocomplete="off" aria-label="Name that others see" onInput={(event) => setName(event.currentTarget.value)} />
      </label>
    </form>
  )
}
