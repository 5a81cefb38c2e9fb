// What a member that is connected can fail to do for the whole run; the others must finish without it.
import type { ToVolunteer } from '@starling-grid/protocol'
import type { GridScenario } from './scenario.ts'
import type { VolunteerProcess } from './volunteer-process.ts'
import type { World } from './world.ts'

export const DEFECTS = [
  'deaf',
  'no-uploads',
  'no-downloads',
  'no-validation',
  'no-ring-steps',
  /** its computations never end in a ring, and do elsewhere */
  'hangs-in-rings',
] as const
/** `false-chunks`: it passes versions on, and other bytes than it has; where a grid is asked for it */
export type Defect = (typeof DEFECTS)[number] | 'false-chunks'

/** Of the first seat. */
function has(defect: Defect, { seat }: VolunteerProcess, scenario: GridScenario): boolean {
  return seat === 0 && scenario.defect === defect
}

/** Its request never gets an answer. */
export function answersNothing(
  volunteer: VolunteerProcess,
  method: string,
  path: string,
  scenario: GridScenario,
): boolean {
  if (method === 'PUT') return has('no-uploads', volunteer, scenario)
  return method === 'GET' && path.includes('/versions/') && has('no-downloads', volunteer, scenario)
}

/** In a ring its computations do not end. */
export function hangs(volunteer: VolunteerProcess, { scenario, observer }: World): boolean {
  return has('hangs-in-rings', volunteer, scenario) && observer.ringOf(volunteer) !== undefined
}

/** In a ring its gradients are no numbers: the ring leaves it out, and it computes beside it. */
export function computesNoNumber(volunteer: VolunteerProcess, { scenario, observer }: World): boolean {
  return has('no-ring-steps', volunteer, scenario) && observer.ringOf(volunteer) !== undefined
}

/** It joins, and receives nothing that the run sends. */
const GREETINGS: ReadonlySet<string> = new Set<ToVolunteer['type']>(['challenge', 'welcome', 'job', 'ice-servers'])

export function hears(volunteer: VolunteerProcess, type: ToVolunteer['type'], scenario: GridScenario): boolean {
  if (has('deaf', volunteer, scenario)) return GREETINGS.has(type)
  return type !== 'validate' || !has('no-validation', volunteer, scenario)
}
