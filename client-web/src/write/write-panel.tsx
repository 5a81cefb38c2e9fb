// Tries the model of a job that writes text, while it trains: a prompt or a message, and what a version makes of it.
import type { RunView } from '@starling-grid/protocol'
import type { ComponentChildren } from 'preact'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { bytes, count, plural, rate } from '../format.ts'
import { DEFAULT_WISHES, readWishes, type Wishes, WishFields } from './wish-fields.tsx'
import { ModelWriter, type Turn, type WriterState } from './writing.ts'

export interface WritePanelProps {
  readonly run: RunView
  readonly token: string | undefined
}

export function WritePanel(props: WritePanelProps) {
  const { id, writes } = props.run.job
  const chats = writes === 'chat'
  const writer = useMemo(() => new ModelWriter({ job: id, token: props.token, chats }), [id, props.token, chats])
  useEffect(() => () => writer.end(), [writer])
  const state = writer.state.value
  return (
    <section class="write" aria-label="Try the model">
      <header>
        <h2>{chats ? 'Talk to the model' : 'Write with the model'}</h2>
        {state.open !== undefined && <VersionChoice run={props.run} writer={writer} state={state} />}
      </header>
      {state.open === undefined ? (
        <Beginning run={props.run} writer={writer} state={state} />
      ) : (
        <Conversation writer={writer} state={state} chats={chats} />
      )}
      <Trouble state={state} />
    </section>
  )
}

interface PartProps {
  readonly writer: ModelWriter
  readonly state: WriterState
}

/** Before anything is fetched: what it takes. */
function Beginning({ run, writer, state }: PartProps & { readonly run: RunView }) {
  const { job, detail, checkpoint, exportPath } = run
  if (detail === 'totals')
    return <p class="soft">The model of this job is for its owner: open the link that the coordinator printed.</p>
  if (exportPath === null || checkpoint === null)
    return <p class="soft">There is no version yet: the first checkpoint is the first that can write.</p>
  if (state.loading !== undefined) return <Loading loading={state.loading} />
  const own = `${bytes(4 * job.parameters)} of version ${count(checkpoint.v)}`
  return (
    <div class="begin">
      <button type="button" class="primary" onClick={() => writer.open()}>
        Load version {count(checkpoint.v)}
      </button>
      <p class="soft">
        This device computes; nothing that you write leaves it. It fetches{' '}
        {job.baseBytes === undefined ? own : `${bytes(job.baseBytes)} of the base model once, and ${own}`}.
      </p>
    </div>
  )
}

const LOADED: Readonly<Record<'model' | 'base' | 'device', string>> = {
  model: 'Fetching the version',
  base: 'Fetching the base model',
  device: 'Preparing this device',
}

function Loading({ loading }: { readonly loading: NonNullable<WriterState['loading']> }) {
  const { what, done, total } = loading
  const label = LOADED[what]
  return (
    <div class="loading" role="status">
      <p class="soft">
        {label}
        {total > 0 && `: ${bytes(done)} of ${bytes(total)}`} …
      </p>
      {total > 0 ? <progress max={total} value={done} aria-label={label} /> : <progress aria-label={label} />}
    </div>
  )
}

/** Which version writes, and the way to others. */
function VersionChoice({ run, writer, state }: PartProps & { readonly run: RunView }) {
  const { checkpoint, best } = run
  const version = state.open?.version ?? 0
  const isBusy = state.isWriting || state.loading !== undefined
  const newest = checkpoint !== null && checkpoint.v !== version ? checkpoint.v : undefined
  const other = best !== null && best.v !== version && best.v !== newest ? best.v : undefined
  return (
    <div class="version-choice">
      <span>
        Version <b>{count(version)}</b> writes
      </span>
      {newest !== undefined && (
        <button type="button" class="quiet" disabled={isBusy} onClick={() => writer.open()}>
          Take the newest, {count(newest)}
        </button>
      )}
      {other !== undefined && (
        <button type="button" class="quiet" disabled={isBusy} onClick={() => writer.open(other)}>
          Take the best, {count(other)}
        </button>
      )}
    </div>
  )
}

function Conversation({ writer, state, chats }: PartProps & { readonly chats: boolean }) {
  const turns = writer.turns.value
  const mayClear = chats && turns.length > 0 && !state.isWriting
  return (
    <>
      {turns.length > 0 && <Written turns={turns} chats={chats} />}
      {state.loading !== undefined && <Loading loading={state.loading} />}
      <AskForm writer={writer} state={state} chats={chats}>
        {mayClear && (
          <button type="button" class="quiet" onClick={() => writer.clear()}>
            New conversation
          </button>
        )}
      </AskForm>
    </>
  )
}

type AskFormProps = PartProps & { readonly chats: boolean; readonly children: ComponentChildren }

function AskForm({ writer, state, chats, children }: AskFormProps) {
  const [text, setText] = useState('')
  const [wishes, setWishes] = useState<Wishes>(DEFAULT_WISHES)
  const options = readWishes(wishes)
  const isReady = text.trim() !== '' && !state.isWriting && state.loading === undefined && options !== undefined
  const send = (event: Event): void => {
    event.preventDefault()
    if (!isReady || options === undefined) return
    writer.write(text, options)
    if (chats) setText('')
  }
  return (
    <form onSubmit={send}>
      <label>
        <span>{chats ? 'Your message' : 'Beginning of the text'}</span>
        <textarea
          rows={chats ? 2 : 3}
          maxLength={MOST_CHARACTERS}
          value={text}
          placeholder={chats ? 'Enter sends it' : 'Ctrl and Enter goes on with it'}
          onInput={({ currentTarget }) => setText(currentTarget.value)}
          onKeyDown={(event) => isSending(event, chats) && send(event)}
        />
      </label>
      <div class="actions">
        {/* keys: a press on the one must not be released on the other */}
        {state.isWriting ? (
          <button key="stop" type="button" class="primary" onClick={() => writer.stop()}>
            Stop
          </button>
        ) : (
          <button key="send" type="submit" class="primary" disabled={!isReady}>
            {chats ? 'Send' : 'Go on'}
          </button>
        )}
        {children}
        <span class="soft device">on {state.open?.adapter.name}</span>
      </div>
      <WishFields wishes={wishes} onWishes={setWishes} />
    </form>
  )
}

/** A text may begin with several lines; a message seldom has them. */
function isSending({ key, isComposing, shiftKey, ctrlKey, metaKey }: KeyboardEvent, chats: boolean): boolean {
  return key === 'Enter' && !isComposing && (chats ? !shiftKey : ctrlKey || metaKey)
}

/** Of a prompt; more than any context holds. */
const MOST_CHARACTERS = 20_000

function Written({ turns, chats }: { readonly turns: readonly Turn[]; readonly chats: boolean }) {
  const list = useFollowed(turns)
  return (
    <ol class="turns" ref={list}>
      {turns.map((turn, i) => (
        <li key={i}>
          {chats ? (
            <>
              <Said by="You">{turn.asked}</Said>
              <Said by="Model">{turn.written}</Said>
            </>
          ) : (
            <p class="text">
              <span class="asked">{turn.asked}</span>
              <span class="answer">{turn.written}</span>
            </p>
          )}
          <p class="soft measure" role="status">
            {measureOf(turn)}
          </p>
        </li>
      ))}
    </ol>
  )
}

/** px from the end at which a reader follows what is written. */
const NEAR_END = 80

/** Stays at the end of what is written, unless its reader scrolled away from there. */
function useFollowed(turns: readonly Turn[]) {
  const list = useRef<HTMLOListElement>(null)
  const isAtEnd = useRef(true)
  useEffect(() => {
    const { current } = list
    if (current === null) return undefined
    const look = (): void => {
      isAtEnd.current = current.scrollHeight - current.scrollTop - current.clientHeight < NEAR_END
    }
    current.addEventListener('scroll', look)
    return () => current.removeEventListener('scroll', look)
  }, [])
  useEffect(() => {
    if (isAtEnd.current && list.current !== null) list.current.scrollTop = list.current.scrollHeight
  }, [turns])
  return list
}

function Said(props: { readonly by: 'You' | 'Model'; readonly children: ComponentChildren }) {
  return (
    <div class={props.by === 'You' ? 'said you' : 'said'}>
      <small>{props.by}</small>
      <p class={props.by === 'You' ? 'text' : 'text answer'}>{props.children}</p>
    </div>
  )
}

const ENDED: Readonly<Record<NonNullable<Turn['why']>, string>> = {
  model: 'the model ended it',
  length: 'as long as you asked for',
  stopped: 'stopped',
  failed: 'broken off',
}

function measureOf({ version, tokens, perSecond, why }: Turn): string {
  const speed = perSecond > 0 ? `, ${rate(perSecond)} tokens/s` : ''
  // A status that changes with each token would be spoken with each token.
  if (why === undefined) return `Version ${count(version)} writes …`
  return `Version ${count(version)}: ${plural(tokens, 'token')}${speed}; ${ENDED[why]}`
}

function Trouble({ state }: { readonly state: WriterState }) {
  if (state.failure === undefined) return null
  const { code, message } = state.failure
  return (
    <div class="notice" role="alert" data-reason={code}>
      <p class="cause">{state.open === undefined ? 'The model could not be opened.' : 'That did not work.'}</p>
      <p class="next-step">{message}</p>
    </div>
  )
}
