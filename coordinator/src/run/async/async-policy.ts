// What a job says of its parameter server, with defaults, checked: how many pushes make a version, and what becomes of
// late ones.
import { type AsyncSettings, GridError, type GroupSettings } from '@starling-grid/protocol'
import { type GroupPolicy, groupPolicy } from '../groups/group-policy.ts'

export interface AsyncPolicy {
  readonly update: 'each' | 'proportion' | 'all'
  /** for `proportion`: up to 1 an assignment of the members that push, above it a number of pushes */
  readonly proportion: number
  /** versions that a push may be behind; undefined: Timing.stalenessBound */
  readonly maxStaleness: number | undefined
  /**
   * what keeps to it: later pushes are dropped, or no member gets more work while it could make another's push too late
   * (SSP)
   */
  readonly whenStale: 'drop' | 'wait'
  readonly damping: 'none' | 'inverse'
  /** λ of DC-ASGD; undefined: none */
  readonly delayCompensation: number | undefined
  /** members push what they learned in a round of several inner steps (G1); absent: gradients */
  readonly groups?: GroupPolicy
}

/**
 * Half of the members that push: no member waits for the slower half, and a version still has the samples of several.
 */
const DEFAULT_PROPORTION = 0.5
/** Of groups most finish a round at about the same time (group-rounds.ts), so a version waits for more of them. */
const PROPORTION_OF_GROUPS = 0.8

export const DEFAULT_ASYNC: AsyncPolicy = {
  update: 'each',
  proportion: DEFAULT_PROPORTION,
  maxStaleness: undefined,
  whenStale: 'drop',
  damping: 'inverse',
  delayCompensation: undefined,
}

/** @throws GridError 'job-invalid' when settings contradict each other, or need older versions than the server keeps */
export function asyncPolicy(
  given: AsyncSettings | undefined,
  keptVersions: number,
  groups?: GroupSettings,
): AsyncPolicy {
  const settings = groups === undefined ? given : ofGroups(given)
  if (settings === undefined) return DEFAULT_ASYNC
  refuseContradictions(settings, keptVersions)
  const { update = 'each', proportion = DEFAULT_PROPORTION, maxStaleness, whenStale, delayCompensation } = settings
  const compensates = delayCompensation !== undefined
  return {
    update,
    proportion,
    maxStaleness: update === 'all' ? 0 : (maxStaleness ?? (compensates ? keptVersions - 1 : undefined)),
    delayCompensation,
    whenStale: update === 'all' ? 'wait' : (whenStale ?? 'drop'),
    // A compensated gradient is meant to count whole.
    damping: settings.damping ?? (compensates ? 'none' : 'inverse'),
    ...(groups === undefined ? {} : { groups: groupPolicy(groups) }),
  }
}

/** A version of groups takes in most of them. */
function ofGroups(settings: AsyncSettings = {}): AsyncSettings {
  if (settings.delayCompensation !== undefined)
    throw contradiction('`delayCompensation` corrects gradients, and groups push differences; leave it out')
  return settings.update === undefined
    ? { ...settings, update: 'proportion', proportion: settings.proportion ?? PROPORTION_OF_GROUPS }
    : settings
}

function refuseContradictions(settings: AsyncSettings, keptVersions: number): void {
  const { update = 'each', maxStaleness = 0, whenStale, delayCompensation } = settings
  if (settings.proportion !== undefined && update !== 'proportion')
    throw contradiction('`proportion` belongs to `update: proportion`')
  if (update === 'all' && maxStaleness !== 0)
    throw contradiction('expected no `maxStaleness` with `update: all`, where no member is behind; leave it out')
  if (update === 'all' && whenStale === 'drop')
    throw contradiction('with `update: all` members wait for each other; leave `whenStale` out')
  const oldest = keptVersions - 1
  if (delayCompensation !== undefined && maxStaleness > oldest)
    throw contradiction(
      '`delayCompensation` needs the version that a push began with, ' +
        `and of a model of this size ${keptVersions} are kept; use a \`maxStaleness\` of at most ${oldest}`,
    )
}

function contradiction(what: string): GridError {
  return new GridError('job-invalid', `async: ${what}`)
}

/** Factor for a push that is `staleness` versions late. */
export function dampingOf({ damping }: AsyncPolicy, staleness: number): number {
  return damping === 'none' ? 1 : 1 / (1 + staleness)
}
