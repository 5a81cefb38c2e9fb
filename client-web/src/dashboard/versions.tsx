// What is committed and what is safe on disk; how the ring stands; what was refused.
import { ERROR_CODES, type RunView } from '@starling-grid/protocol'
import type { ComponentChildren } from 'preact'
import { bytes, clockTime, count, plural, shortHash } from '../format.ts'

export function Versions(props: { readonly run: RunView }) {
  const { version, checkpoint, generation, modeEpoch, exportPath } = props.run
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
        <Row term="Model">
          {exportPath === null ? 'to download after the first checkpoint' : <a href={exportPath} download>Download safetensors</a>}
        </Row>
      </dl>
    </section>
  )
}

function Checkpoint(props: { readonly checkpoint: NonNullable<RunView['checkpoint']> }) {
  const { v, id, bytes: size, at, witnessed, agreeing, members } = props.checkpoint
  return (
    <>
      {count(v)} <code>{shortHash(id)}</code>
      <small>
        {bytes(size)} at {clockTime(at)},{' '}
        {witnessed ? `${agreeing} of ${plural(members, 'member')} hold exactly these bytes` : <em>not yet confirmed by a second member</em>}
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
      {entries.length === 0 && <p class="soft">Nothing was refused.</p>}
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
