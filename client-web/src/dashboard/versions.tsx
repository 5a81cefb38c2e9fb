// What is committed and what is safe on disk; how the ring stands; what was refused.
import { ERROR_CODES, type RunView } from '@starling-grid/protocol'
import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { bytes, clockTime, count, plural, shortHash } from '../format.ts'

export function Versions(props: { readonly run: RunView; readonly token: string | undefined }) {
  const { version, checkpoint, generation, modeEpoch } = props.run
  return (
    <section class="versions" aria-label="Versions">
      <h2>Versions</h2>
      <dl>
        <Row term="Committed">
          {count(version.v)} <code>{shortHash(version.id)}</code>
        </Row>
        <Row term="Checkpoint">{checkpoint === null ? 'none yet' : <Checkpoint checkpoint={checkpoint} />}</Row>
        <Row term="Generation">
          {count(generation)}, mode epoch {count(modeEpoch)}
        </Row>
        <Row term="Audit">
          <Audit audit={props.run.audit} />
        </Row>
        <Row term="Model">
          <Model {...props} />
        </Row>
      </dl>
    </section>
  )
}

function Model(props: { readonly run: RunView; readonly token: string | undefined }) {
  const { exportPath, detail } = props.run
  const { token } = props
  const [trouble, setTrouble] = useState('')
  if (detail === 'totals') return <>to download by its owner</>
  if (exportPath === null) return <>to download after the first checkpoint</>
  if (token === undefined)
    return (
      <a href={exportPath} download>
        Download safetensors
      </a>
    )
  const save = (): void =>
    void download(exportPath, token).then(
      () => setTrouble(''),
      (error: unknown) => setTrouble(String(error)),
    )
  return (
    <>
      <button type="button" class="quiet" onClick={save}>
        Download safetensors
      </button>
      {trouble !== '' && <small>{trouble}</small>}
    </>
  )
}

/** A link cannot carry a token other than in its address, where logs would keep it. */
async function download(path: string, token: string): Promise<void> {
  const response = await fetch(path, { headers: { authorization: `Bearer ${token}` } })
  if (!response.ok) throw new Error(`expected the model, got HTTP ${response.status}; reload the page`)
  const url = URL.createObjectURL(await response.blob())
  const link = document.createElement('a')
  link.href = url
  link.download =
    /filename="([^"]+)"/.exec(response.headers.get('content-disposition') ?? '')?.[1] ?? 'model.safetensors'
  link.click()
  URL.revokeObjectURL(url)
}

function Checkpoint(props: { readonly checkpoint: NonNullable<RunView['checkpoint']> }) {
  const { v, id, bytes: size, at, witnessed, agreeing, members } = props.checkpoint
  return (
    <>
      {count(v)} <code>{shortHash(id)}</code>
      <small>
        {bytes(size)} at {clockTime(at)},{' '}
        {witnessed ? (
          `${agreeing} of ${plural(members, 'member')} hold exactly these bytes`
        ) : (
          <em>not yet confirmed by a second member</em>
        )}
      </small>
    </>
  )
}

/** Steps that the coordinator computed again from their records. */
function Audit(props: { readonly audit: RunView['audit'] }) {
  const { every, agreed, differed, notComputed, off, last } = props.audit
  if (off !== null) return <>none: {off}</>
  return (
    <>
      {count(agreed)} agreed, {differed === 0 ? '0 differed' : <strong>{count(differed)} differed</strong>}
      <small>
        about one step in {count(every)}; {count(notComputed)} not computable
        {last !== null && `; step ${count(last.v)} ${last.result}: ${last.text}`}
      </small>
    </>
  )
}

function Row(props: { readonly term: string; readonly children: ComponentChildren }) {
  return (
    <div>
      <dt>{props.term}</dt>
      <dd>{props.children}</dd>
    </div>
  )
}

export function Refusals(props: { readonly refusals: RunView['refusals'] }) {
  const entries = Object.entries(props.refusals).sort((a, b) => b[1] - a[1])
  return (
    <section class="refusals" aria-label="Refusals">
      <h2>Refusals</h2>
      {entries.length === 0 && <p class="soft">No refusals yet.</p>}
      <ul>
        {entries.map(([code, times]) => (
          <li key={code}>
            <b>{count(times)}×</b> <code>{code}</code> <span class="soft">{meaningOf(code)}</span>
          </li>
        ))}
      </ul>
    </section>
  )
}

/** Empty for a code of a newer coordinator. */
function meaningOf(code: string): string {
  const meanings: Readonly<Record<string, string>> = ERROR_CODES
  return Object.hasOwn(meanings, code) ? (meanings[code] ?? '') : ''
}
