// Whether the states of a job fit this machine: said when it is submitted, before anything of it is read or made.
import { totalmem } from 'node:os'
import { maxVersionBytes, type ModelSpec, outerOptimizer, parameterLayout } from '@starling-grid/model'
import { type JobSpec, MAX_STATE_BYTES } from '@starling-grid/protocol'
import { mistaken } from './mistaken.ts'
import { localSettings } from './rounds.ts'

/** A state while it is checked, and the one before it. */
const STATES_HELD = 2

/** @throws MistakesError 'job-invalid' naming the state's bytes, and what a frame or this machine can hold */
export function requireStateMemory(spec: JobSpec, model: ModelSpec, machineBytes = ownBytes()): void {
  const local = localSettings(spec)
  const { optimizer } = spec
  const outer = local ? { outer: outerOptimizer(local) } : {}
  const bytes = maxVersionBytes({ layout: parameterLayout(model), optimizer, ...outer })
  const most = Math.min(MAX_STATE_BYTES, Math.floor(machineBytes / STATES_HELD))
  if (bytes <= most) return
  throw mistaken(['model'], {
    expected:
      most === MAX_STATE_BYTES
        ? `a state of at most ${sizeOf(most)}, parameters and what optimizers keep`
        : `a state that this coordinator can hold ${STATES_HELD} times in its ${sizeOf(machineBytes)} of memory`,
    found: sizeOf(bytes),
    hint: 'tune adapters (`model.lora`), take an optimizer that keeps less, or a smaller model',
  })
}

/** What the process may take: of a container its limit. */
function ownBytes(): number {
  const limit = process.constrainedMemory()
  return limit > 0 ? Math.min(limit, totalmem()) : totalmem()
}

function sizeOf(bytes: number): string {
  return `${(bytes / 1e9).toFixed(bytes < 1e8 ? 3 : 1)} GB`
}
