// A training loop that runs in one process, made to run in many: in the words of Horovod (Sergeev and Del Balso 2018).
// `starling launch -n 4 program.ts` starts the processes and introduces them to each other.
import { joinGroup } from '@starling-grid/client-node'
import { type AllReduceOptions, type Communicator, openCommunicator } from '@starling-grid/volunteer'
import type { Optimizer } from './model.ts'

/** What a rank may choose of the exchange; equal on all ranks. */
export type AveragingOptions = Pick<AllReduceOptions<Float32Array>, 'algorithm' | 'timeoutMs' | 'signal'>

/**
 * The group that `starling launch` started this process for; a group of one when it was started by itself. Close it at
 * the end, or the process goes on.
 * @throws GridError 'coordinator-lost', 'link-timeout' when the other ranks cannot be reached
 * @example const group = await init(); console.log(`rank ${group.rank} of ${group.size}`)
 */
export async function init(): Promise<Communicator> {
  return (await joinGroup()) ?? openCommunicator(ALONE)
}

/** Every rank goes on with the parameters of `root`, in place. Call it before the first step, and on all ranks. */
export async function broadcastParameters(group: Communicator, parameters: Float32Array, root = 0): Promise<void> {
  await group.broadcast(parameters, { root })
}

/**
 * The same optimizer over the mean of all ranks' gradients. Ranks with batches of equal size train as one process would
 * with all batches joined. The caller chooses the learning rate for that larger batch.
 * @example const optimizer = distributedOptimizer(group, model.optimizer({ type: 'adam', lr: 1e-3 }))
 */
export function distributedOptimizer(
  group: Communicator,
  optimizer: Optimizer,
  options: AveragingOptions = {},
): Optimizer {
  return {
    async step(gradient) {
      const mean = await group.allReduce(gradient, { ...options, op: 'mean', into: gradient })
      await optimizer.step(mean)
    },
  }
}

/** How a rank that has no other reaches them. */
const ALONE: Parameters<typeof openCommunicator>[0] = {
  rank: 0,
  size: 1,
  connect: (rank) => Promise.reject(new Error(`internal: rank ${rank} in a group of one`)),
  listen: () => undefined,
  stop: () => undefined,
}
