// What a job says of rounds of several inner steps, with defaults, checked: local rounds of a ring (A7), and rounds of
// replica groups (G1).
import { type GradientEncoding, type JobSpec, type LocalSettings, MAX_STEP_BLOCKS } from '@starling-grid/protocol'
import { type GroupPolicy, groupPolicy, makesRounds } from '../run/groups/group-policy.ts'
import { mistaken } from './mistaken.ts'

/** H of a ring where the job names none: most jobs here are short */
const RING_STEPS = 16
/**
 * Of the outer step as in DiLoCo (Douillard et al., 2023), but for momentum 0.7. Its 0.9 is for hundreds of inner steps
 * and rounds. After 26 rounds of 16 it left the loss 20 to 60 % above the ring's (`npm run bench -- local` compares).
 */
const OUTER = { outerLr: 0.7, outerMomentum: 0.7 } as const
/**
 * With sparse2 the residual of each member is a momentum already: it holds what earlier rounds learned and have not
 * sent (Sarfi et al., 2025). After 35 rounds of 16 steps the momentum above left the loss 25 % higher than this one.
 */
const OUTER_OF_SPARSE = { outerLr: 0.9, outerMomentum: 0.3 } as const

/**
 * Between the two, for differences that travel whole at one time and sparse at another: in the same trainings 2 % above
 * the better one of each.
 */
const OUTER_OF_AUTO = { outerLr: 0.8, outerMomentum: 0.5 } as const

function outerOf(spec: JobSpec): Pick<LocalSettings, 'outerLr' | 'outerMomentum'> {
  if (spec.encoding === 'sparse2') return OUTER_OF_SPARSE
  return spec.encoding === 'auto' && makesRoundsOnly(spec) ? OUTER_OF_AUTO : OUTER
}

/**
 * What rounds use; undefined in a job that makes none. Groups of one inner step exchange gradients. @throws
 * MistakesError 'job-invalid'
 */
export function localSettings(spec: JobSpec): LocalSettings | undefined {
  const { mode, local, groups, batchBlocks } = spec
  if (groups !== undefined) requireGroups({ mode, local })
  if (spec.encoding === 'sparse2') requireRounds(spec)
  if (mode !== 'local' && local === undefined && groups === undefined) return undefined
  const outer = outerOf(spec)
  if (groups !== undefined) return groupSettings(groupPolicy(groups), { local: { ...outer, ...local }, batchBlocks })
  const settings = { innerSteps: RING_STEPS, ...outer, ...local }
  requireFew(settings, batchBlocks, 'local')
  return settings
}

function groupSettings(
  policy: GroupPolicy,
  { local, batchBlocks }: Pick<JobSpec, 'batchBlocks'> & { readonly local: Omit<LocalSettings, 'innerSteps'> },
): LocalSettings | undefined {
  if (!makesRounds(policy)) {
    if (policy.crowdRate === undefined) return undefined
    throw mistaken(['groups', 'crowdRate'], {
      expected: 'rounds of more than one inner step, whose rate it is',
      found: '`innerSteps: 1`',
      hint: 'leave one of the two out',
    })
  }
  // each grant says how many steps its round has
  if (policy.innerSteps === 'auto') return { innerSteps: RING_STEPS, ...local }
  const settings = { ...local, innerSteps: policy.innerSteps }
  requireFew(settings, batchBlocks, 'groups')
  return settings
}

/**
 * What sparse2 leaves out of one difference is in the next. Of a gradient it would come when its batch is long over.
 */
function requireRounds(spec: JobSpec): void {
  if (makesRoundsOnly(spec)) return
  throw mistaken(['encoding'], {
    expected: '`f32`, `f16` or `int8` in a job that exchanges gradients',
    found: 'sparse2',
    hint: 'write `"encoding": "int8"`, or train in rounds: `"mode": "local"`, or `groups` without `innerSteps: 1`',
  })
}

/** What `encoding: auto` chooses from, the finest first. */
export function encodingsOf(spec: Pick<JobSpec, 'mode' | 'groups'>): readonly GradientEncoding[] {
  return ['f32', 'f16', 'int8', ...(makesRoundsOnly(spec) ? (['sparse2'] as const) : [])]
}

/** It never exchanges gradients. */
export function makesRoundsOnly({ mode, groups }: Pick<JobSpec, 'mode' | 'groups'>): boolean {
  return mode === 'local' || (groups !== undefined && makesRounds(groupPolicy(groups)))
}

function requireGroups({
  mode,
  local,
}: Pick<JobSpec, 'mode'> & { readonly local: JobSpec['local'] | undefined }): void {
  if (mode !== 'async')
    throw mistaken(['mode'], {
      expected: '`async` in a job with `groups`',
      found: mode,
      hint: 'write `"mode": "async"`, or leave `groups` out',
    })
  for (const field of ['innerSteps', 'fragments'] as const)
    if (local?.[field] !== undefined)
      throw mistaken(['local', field], {
        expected: 'no such field in a job with `groups`',
        found: String(local[field]),
        hint: field === 'innerSteps' ? 'write `groups.innerSteps`' : 'leave it out',
      })
}

function requireFew(
  { innerSteps, fragments = 1 }: LocalSettings,
  batchBlocks: number,
  field: 'local' | 'groups',
): void {
  const blocks = innerSteps * batchBlocks
  if (blocks > MAX_STEP_BLOCKS)
    throw mistaken([field, 'innerSteps'], {
      expected: `rounds of at most ${MAX_STEP_BLOCKS} blocks`,
      found: `${blocks} (${innerSteps} inner steps of ${batchBlocks})`,
      hint: 'use larger blocks or fewer inner steps',
    })
  if (fragments > innerSteps)
    throw mistaken(['local', 'fragments'], {
      expected: `at most one fragment for each of ${innerSteps} inner steps`,
      found: String(fragments),
      hint: 'use fewer fragments or more inner steps',
    })
}
