// The next steps of a running generation: what the queue has for them, within what all aspects of the run allow (R12).
import type { BlockId, PlanStep } from '@starling-grid/protocol'
import { planSteps, planWindow } from '../queue/scheduler.ts'
import { own } from '../state.ts'
import type { Aspect, Transition } from '../transition.ts'

declare module '../state.ts' {
  interface Slices {
    everPlanned: EverPlanned
  }
}

/** For the simulation: rule R12-done off keeps what was ever planned. */
export type EverPlanned = Set<BlockId>

export const plan = {
  initial: () => ({ everPlanned: new Set() }),
  plan: { isTaken: ({ config, everPlanned }, block) => config.off.has('R12-done') && everPlanned.has(block) },
} satisfies Aspect

/** Steps to plan ahead of C. */
export function windowOf({ state, now, aspects }: Transition): number {
  return aspects.reduce((window, { plan }) => plan?.window?.(state, window, now) ?? window, planWindow(state))
}

/** Those after `plannedTo`; `planned`: of the steps before. */
export function nextSteps(
  transition: Transition,
  planned: ReadonlyMap<number, readonly BlockId[]>,
  plannedTo: number,
): PlanStep[] {
  const { state, aspects } = transition
  const limits = aspects.flatMap(({ plan }) => plan?.isTaken ?? [])
  const isTaken = (block: BlockId): boolean => limits.some((has) => has(state, block))
  const steps = planSteps(state, planned, { plannedTo, window: windowOf(transition), isTaken })
  if (state.config.off.has('R12-done'))
    for (const { blocks } of steps) for (const block of blocks) own(state, 'everPlanned').add(block)
  return steps
}
