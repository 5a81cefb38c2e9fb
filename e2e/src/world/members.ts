// What one seed is on the members' side: how gradients travel, which members cannot link, how slow lines and
// machines are. Drawn apart, so that it changes nothing else of a seed.
import type { GradientEncoding, JobSpec } from '@starling-grid/protocol'
import { Dice } from './dice.ts'

export interface MemberScenario {
  readonly encoding: GradientEncoding
  /** of local rounds */
  readonly local: { readonly innerSteps: number; readonly fragments: number }
  /** in async mode members push what they learned in a round (G1) */
  readonly isGrouped: boolean
  /** its rounds are as long as the run finds best */
  readonly isPaced: boolean
  /** pairs of seats that cannot open a link: the coordinator relays their frames (R18) */
  readonly unlinked: readonly (readonly [number, number])[]
  /** a seat that opens no link, not even a relayed one: it works off the ring (A1) */
  readonly linkless: number | undefined
  /** from one seat to another nothing arrives over a link, ever; the other way it does (R17) */
  readonly brokenLink: readonly [number, number] | undefined
  /** a member that computes so much slower now and then */
  readonly slowness: number
  /** ms that a digest takes at most: between two promises of a process others may be heard */
  readonly digestMs: number
  /** ms that a frame or a message takes one way at most */
  readonly latencyMs: number
  /** ms that it takes at most on slow lines, of which there are some: what is sent later elsewhere arrives earlier */
  readonly slowLineMs: number | undefined
  /** of the requests over HTTP, how many arrive a second time */
  readonly repeated: number
  /** bytes a ms of a link between members */
  readonly linkBytesPerMs: number
}

/** What a hunt may ask for. */
export interface MemberOptions {
  readonly encoding?: GradientEncoding
  readonly fragments?: number
  readonly grouped?: boolean
  readonly unlinked?: boolean
  readonly linkless?: boolean
  readonly brokenLink?: boolean
  readonly shuffled?: boolean
  readonly slowness?: number
  readonly digestMs?: number
}

/** Of the seeds, how many have it. */
const GROUPED = 0.5
/** Of these, how many choose how long their rounds are. */
const PACED = 0.5
const ENCODED = 0.3
const UNLINKED = 0.2
const LINKLESS = 0.05
const BROKEN_LINK = 0.05
const SHUFFLED = 0.3
/** below the time for STATE and all other times of a run */
const SLOW_LINE_MS = 1200
const REPEATED = 0.04
/** A round has as many blocks as inner steps, so that each is a batch of its own. */
const INNER_STEPS = [3, 5] as const

export function memberScenario(seed: number, seats: number, options: MemberOptions): MemberScenario {
  const dice = new Dice(Math.imul(seed, 0x85ebca6b) ^ 0x3e3b)
  const encoding = dice.chance(ENCODED) ? dice.pick(['f16', 'int8']) : 'f32'
  const fragments = dice.pick([1, 1, 2, 3])
  const innerSteps = dice.pick(INNER_STEPS)
  const pair = [dice.below(seats), dice.below(seats)] as const
  const isUnlinked = dice.chance(UNLINKED)
  const isLinkless = dice.chance(LINKLESS)
  const slowness = dice.pick([1, 1, 8, 30])
  const digestMs = dice.pick([0, 0, 5, 60])
  const latencyMs = dice.pick([40, 40, 300])
  const linkBytesPerMs = dice.pick([200, 200, 5, 1])
  const linkless = (options.linkless ?? isLinkless) ? seats - 1 : undefined
  const isPaced = new Dice(Math.imul(seed, 0x27d4eb2f) ^ 0x51ed).chance(PACED)
  const lines = linesOf(dice, linkless !== undefined, options)
  return {
    isGrouped: options.grouped ?? dice.chance(GROUPED),
    isPaced,
    encoding: options.encoding ?? encoding,
    local: { innerSteps, fragments: options.fragments ?? fragments },
    unlinked: (options.unlinked ?? isUnlinked) && pair[0] !== pair[1] ? [pair] : [],
    linkless,
    slowness: options.slowness ?? slowness,
    digestMs: options.digestMs ?? digestMs,
    latencyMs,
    linkBytesPerMs,
    ...lines,
  }
}

function linesOf(
  dice: Dice,
  isLinkless: boolean,
  options: MemberOptions,
): Pick<MemberScenario, 'brokenLink' | 'slowLineMs' | 'repeated'> {
  const isBroken = options.brokenLink ?? dice.chance(BROKEN_LINK)
  const isShuffled = options.shuffled ?? dice.chance(SHUFFLED)
  return {
    brokenLink: isBroken && !isLinkless ? [0, 1] : undefined,
    slowLineMs: isShuffled ? SLOW_LINE_MS : undefined,
    repeated: isShuffled ? REPEATED : 0,
  }
}

/** The job's fields that this side draws. In a round each block is a batch of its own, and counts whole. */
export function memberTerms(
  { encoding, local, isGrouped, isPaced }: MemberScenario,
  mode: JobSpec['mode'],
  async: JobSpec['async'],
): Pick<JobSpec, 'encoding' | 'local' | 'groups' | 'async'> & { readonly batchBlocks?: number } {
  const travels = { ...(encoding === 'f32' ? {} : { encoding }), ...(async === undefined ? {} : { async }) }
  if (mode === 'async' && isGrouped)
    return {
      ...travels,
      batchBlocks: 1,
      groups: isPaced ? {} : { innerSteps: local.innerSteps },
      local: { outerLr: 1, outerMomentum: 0 },
      async: { ...async, damping: 'none' },
    }
  if (mode !== 'local') return travels
  return { ...travels, batchBlocks: 1, local: { ...local, outerLr: 1, outerMomentum: 0 } }
}
