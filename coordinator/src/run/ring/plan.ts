// The next steps of a running generation: what the queue has for them, within what all aspects of the run allow (R12).
import type { BlockId, PlanStep } from '@starling-grid/protocol'
import { planSteps, planWindow } from '../queue/scheduler.ts'
import type { Transition } from '../transition.ts'
import { type PlannedBefore, scaled } from './weak-scaling.ts'

/** Steps to plan ahead of C. */
export function windowOf({ state, now, aspects }: Transition): number {
  return aspects.reduce((window, { plan }) => plan?.window?.(state, window, now) ?? window, planWindow(state))
}

/** Those after the ones that are planned. */
export function nextSteps(transition: Transition, before: PlannedBefore): PlanStep[] {
  const { state, aspects } = transition
  const { planned, plannedTo } = before
  const limits = aspects.flatMap(({ plan }) => plan?.isTaken ?? [])
  const [batchBlocks] = transition.aspects.flatMap(({ plan }) => plan?.batchBlocks?.(state) ?? [])
  const isTaken = (block: BlockId): boolean => limits.some((has) => has(state, block))
  const steps = planSteps(state, planned, { plannedTo, window: windowOf(transition), isTaken, batchBlocks })
  return scaled(state, steps, { ...before, batch: batchBlocks ?? state.config.batchBlocks })
}
