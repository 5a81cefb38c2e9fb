// A thread of the parameter server that hangs, in a real run: its answer is waited for, then the run goes on without
// it.
import assert from 'node:assert/strict'
import { mock, test } from 'node:test'
import { Worker } from 'node:worker_threads'
import type { WatchMessage } from '@starling-grid/protocol'
import { QUICK, recordsOf, runOf, smallJob, startCoordinator, submit, until, volunteer, watch } from './fixture.ts'

/** ms: a thread of a busy machine starts in less */
const ANSWER_MS = 10_000

/** Large enough for threads. */
const WIDE = {
  name: 'wide',
  input: [1, 28, 28],
  layers: [{ type: 'flatten' }, { type: 'linear', name: 'fc', out: 1400 }],
}

test('a thread of the parameter server that never answers is given up, and the run goes on to its end', async () => {
  const post = Worker.prototype.postMessage
  let commands = 0
  const swallowing = mock.method(Worker.prototype, 'postMessage', function (this: Worker, ...said: Posted) {
    const [message] = said
    const isApply = typeof message === 'object' && message !== null && 'type' in message && message.type === 'apply'
    if (isApply && ++commands === 4) return // the thread waits for it for ever
    post.apply(this, said)
  })
  try {
    const { url } = await startCoordinator({ timing: { ...QUICK, threadAnswerMs: ANSWER_MS } })
    const { id } = await submit(
      url,
      smallJob({ mode: 'async', stop: { epochs: 1 }, model: WIDE, volunteers: { min: 1 } }),
    )
    const { messages, stop } = watch(url)
    const notes: string[] = []
    const listening = listen(messages, notes)
    const fakes = [volunteer(url)]
    await Promise.all(fakes.map((fake) => fake.heard('finished')))
    await until(url, 'the end', ({ phase }) => phase === 'finished')
    stop()
    await listening
    const blocks = (await recordsOf(url, id)).flatMap((record) => record.blocks)
    assert.deepEqual([blocks.length, new Set(blocks).size], [36, 36])
    const run = await runOf(url, id)
    assert.deepEqual([run.phase, run.checkpoint?.v], ['finished', run.version.v])
    assert.ok(commands > 9, 'versions were made again, in new threads')
    assert.ok(
      notes.some((text) =>
        /parameter server stopped: .*expected an answer of the parameter server's thread within \d+ ms/.test(text),
      ),
      `${notes}`,
    )
    assert.ok(notes.filter((text) => /computes in \d+ threads/.test(text)).length >= 2)
  } finally {
    swallowing.mock.restore()
  }
})

type Posted = Parameters<Worker['postMessage']>

async function listen(messages: AsyncIterable<WatchMessage>, notes: string[]): Promise<void> {
  for await (const message of messages)
    if (message.type !== 'none') notes.push(...message.events.map(({ text }) => text))
}
