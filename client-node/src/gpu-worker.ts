// A thread of a volunteer that computes on one GPU of several. Started by gpu-bootstrap.mjs.
import { parentPort } from 'node:worker_threads'
import type { Executor, ExecutorBounds } from '@starling-grid/volunteer'
import { openGpuExecutor } from './gpu-executor.ts'
import {
  errorFrom,
  type FromGpuThread,
  type OpenOrder,
  threadErrorOf,
  type ToGpuThread,
} from './gpu-thread-messages.ts'
import { openGpu } from './gpu.ts'

if (parentPort === null) throw new Error('internal: a computing thread runs in a thread of a volunteer')
const port = parentPort

const say = (message: FromGpuThread): void => port.postMessage(message)

/** The next message of this type. Which frozen parameter it brings is the one that was asked for: one at a time. */
function next<T extends ToGpuThread['type']>(type: T): Promise<Extract<ToGpuThread, { type: T }>> {
  return new Promise((resolve) => {
    const onMessage = (message: ToGpuThread): void => {
      if (message.type !== type) return
      port.off('message', onMessage)
      resolve(message as Extract<ToGpuThread, { type: T }>)
    }
    port.on('message', onMessage)
  })
}

async function frozenParameter(name: string): Promise<Float32Array> {
  const answer = next('frozen')
  say({ type: 'wants-frozen', name })
  const { values } = await answer
  if (values instanceof Float32Array) return values
  throw errorFrom(values)
}

let calls = 0

/** Asked of the volunteer that started this thread, which alone speaks to the coordinator. */
const sharedVariants: NonNullable<ExecutorBounds['variants']> = (adapterClass, report) =>
  new Promise((resolve, reject) => {
    const call = ++calls
    const onMessage = (message: ToGpuThread): void => {
      if (message.type !== 'variants' || message.call !== call) return
      port.off('message', onMessage)
      if (message.answer instanceof Uint8Array) resolve(message.answer)
      else reject(errorFrom(message.answer))
    }
    port.on('message', onMessage)
    say({ type: 'shares-variants', call, adapterClass, report })
  })

function open({ adapter, bounds, hasFrozen, sharesVariants, type: _type, ...wanted }: OpenOrder): Promise<Executor> {
  const place = {
    say: (text: string) => say({ type: 'say', text }),
    async open() {
      const turn = next('turn')
      say({ type: 'wants-turn' })
      await turn
      try {
        return await openGpu({ listed: adapter })
      } finally {
        say({ type: 'turn-over' })
      }
    },
  }
  const frozen = hasFrozen ? { frozen: { read: frozenParameter } } : {}
  const variants = sharesVariants ? sharedVariants : undefined
  const given = bounds && { ...bounds, ...frozen, variants, onDeviceLost: () => say({ type: 'lost' }) }
  return openGpuExecutor({ ...wanted, bounds: given }, place)
}

function serve(executor: Executor, message: ToGpuThread): void {
  switch (message.type) {
    case 'load':
      return executor.loadParameters(message.parameters)
    case 'gradient': {
      const { call, batch, into, ranges } = message
      const onFinal = (index: number): void => say({ type: 'final', call, index })
      return answer(call, executor.gradient(batch, into, ranges && { ranges, onFinal }))
    }
    case 'evaluate':
      return answer(message.call, executor.evaluate(message.batch))
    case 'predict':
      return answer(message.call, executor.predict(message.x, message.samples))
    case 'close':
      executor.destroy()
      return port.close()
    case 'open':
    case 'turn':
    case 'frozen':
    case 'variants':
      return // those that wait for it get it
    default:
      return message satisfies never
  }
}

function answer(call: number, result: Promise<unknown>): void {
  result.then(
    (value) => say({ type: 'answer', call, result: value }),
    (error: unknown) => say({ type: 'failed', call, error: threadErrorOf(error) }),
  )
}

const order = await next('open')
try {
  const executor = await open(order)
  port.on('message', (message: ToGpuThread) => serve(executor, message))
  say({ type: 'opened', adapter: executor.adapter })
} catch (error) {
  say({ type: 'refused', error: threadErrorOf(error) })
  port.close()
}
