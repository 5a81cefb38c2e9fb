// Where the blocks of this epoch are.
import { epochText, type RunView } from '@starling-grid/protocol'
import { count } from '../format.ts'

interface Part {
  readonly name: string
  readonly kind: 'done' | 'pending' | 'todo' | 'quarantined'
  readonly blocks: number
}

export function WorkQueue(props: { readonly run: RunView }) {
  const { queue, validationQueue, job } = props.run
  const training: readonly Part[] = [
    { name: 'DONE', kind: 'done', blocks: queue.done },
    { name: 'PENDING', kind: 'pending', blocks: queue.pending },
    { name: 'TODO', kind: 'todo', blocks: queue.todo },
    { name: 'Quarantined', kind: 'quarantined', blocks: queue.quarantined },
  ]
  const validation: readonly Part[] = [
    { name: 'DONE', kind: 'done', blocks: validationQueue.done },
    { name: 'PENDING', kind: 'pending', blocks: validationQueue.pending },
    { name: 'TODO', kind: 'todo', blocks: validationQueue.todo },
  ]
  return (
    <section class="queue" aria-label="Work queue">
      <h2>Work queue</h2>
      <Bar
        title={`Blocks of epoch ${epochText(props.run)}, ${count(job.blockSamples)} samples each`}
        parts={training}
      />
      <Bar title="Validation blocks" parts={validation} />
    </section>
  )
}

function Bar(props: { readonly title: string; readonly parts: readonly Part[] }) {
  const total = props.parts.reduce((sum, part) => sum + part.blocks, 0)
  return (
    <div class="queue-row">
      <p class="soft">{props.title}</p>
      <div class="bar" aria-hidden="true">
        {props.parts.map((part) => (
          <span key={part.kind} class={part.kind} style={{ flexGrow: total === 0 ? 0 : part.blocks / total }} />
        ))}
      </div>
      <ul>
        {props.parts.map((part) => (
          <li key={part.kind} class={part.kind}>
            {part.name} <b>{count(part.blocks)}</b>
          </li>
        ))}
      </ul>
    </div>
  )
}
