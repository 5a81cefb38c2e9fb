// Figures of this process: CPU, memory, file handles, garbage collection, delay of the event loop. Of the process and
// not of a coordinator: several of them in one process share them.
import { collectDefaultMetrics, Registry } from 'prom-client'

let registry: Registry | undefined

/** Measured from the first call on. */
export function processMetrics(): Registry {
  if (registry === undefined) {
    registry = new Registry()
    collectDefaultMetrics({ register: registry })
  }
  return registry
}
