// What `plan --with` says of volunteers: "30 laptops, 5 gaming PCs, home lines". From text to machines and their lines.
import { GridError, MAX_VOLUNTEERS, nearest } from '@starling-grid/protocol'
import { FIBRE, HOMES, LAB, type LinkProfile, MACHINE_KINDS, type MachineKind, MOBILE } from '../scaling/profiles.ts'

/** Machines of one kind; at most one of the two speeds is given in place of the kind's own. */
export interface CrowdGroup {
  readonly count: number
  readonly kind: MachineKind
  readonly samplesPerSecond?: number
  readonly gflops?: number
  /** adapters with the feature shader-f16: as their kind, unless the text says otherwise */
  readonly f16: boolean
}

export interface Crowd {
  readonly groups: readonly CrowdGroup[]
  readonly links: LinkProfile
  /** whether the text names the lines */
  readonly isLineGiven: boolean
}

const LINES: Readonly<Record<string, LinkProfile>> = {
  'home line': HOMES,
  home: HOMES,
  'fibre line': FIBRE,
  fibre: FIBRE,
  fiber: FIBRE,
  'mobile line': MOBILE,
  mobile: MOBILE,
  lab: LAB,
  'lab line': LAB,
}
const EXAMPLE = '30 laptops, 5 gaming PCs, home lines'
/** bytes per second of 1 Mbit/s */
const MBIT = 125_000
const MEASURED_LINE = /^([\d.]+)\s*\/\s*([\d.]+)\s*mbit\/s(?:\s+([\d.]+)\s*ms)?$/i
const MACHINES = /^(\d+)\s+(.+?)(?:\s+(?:at|with|of)\s+([\d.]+)\s*(samples|gflop|tflop)\/s)?$/i
const HALVES = /\s+(with|without)\s+(?:shader-)?f16\b/i
const FASTEST_LINE_MBIT = 100_000
const LONGEST_MS = 10_000

/** @throws GridError 'usage' for what it does not know, with the word that was probably meant */
export function readCrowd(text: string): Crowd {
  const parts = text
    .split(/,|\band\b/)
    .map((part) => part.trim().replaceAll(/\s+/g, ' '))
    .filter((part) => part !== '')
  const lines = parts.flatMap((part) => lineOf(part) ?? [])
  if (lines.length > 1)
    throw refused('one kind of lines for all machines', `"${text}"`, 'name the slowest, which all wait for')
  const groups = parts.filter((part) => lineOf(part) === undefined).map(groupOf)
  const count = groups.reduce((sum, group) => sum + group.count, 0)
  if (count === 0) throw refused('machines to plan with', `"${text}"`, `write for example "${EXAMPLE}"`)
  if (count > MAX_VOLUNTEERS)
    throw refused(`at most ${MAX_VOLUNTEERS} machines for one coordinator`, String(count), 'plan with fewer')
  return { groups, links: lines[0] ?? HOMES, isLineGiven: lines.length > 0 }
}

/** A part of all volunteers that leaves in a minute: "20%/min". */
export function readChurn(text: string): number {
  const [, percent] = /^([\d.]+)\s*%(?:\s*\/\s*min(?:ute)?)?$/.exec(text.trim()) ?? []
  const churn = Number(percent) / 100
  if (churn >= 0 && churn <= 1) return churn
  throw refused('--churn as a part of all volunteers in a minute, from 0 to 100 %', `"${text}"`, 'write 20%/min')
}

function lineOf(part: string): LinkProfile | undefined {
  const [, up, down, ms] = MEASURED_LINE.exec(part) ?? []
  if (up !== undefined && down !== undefined) return measuredLine(part, Number(up), Number(down), ms)
  const name = singular(part)
  return Object.hasOwn(LINES, name) ? LINES[name] : undefined
}

function measuredLine(part: string, up: number, down: number, ms: string | undefined): LinkProfile {
  const latencyMs = ms === undefined ? HOMES.latencyMs : Number(ms)
  const isRate = (mbit: number): boolean => mbit > 0 && mbit <= FASTEST_LINE_MBIT
  if (!isRate(up) || !isRate(down) || !(latencyMs >= 0 && latencyMs <= LONGEST_MS))
    throw refused(
      `a line up to ${FASTEST_LINE_MBIT} Mbit/s and ${LONGEST_MS} ms`,
      `"${part}"`,
      'write up/down as in "20/60 Mbit/s 15 ms"',
    )
  return { name: part, up: up * MBIT, down: down * MBIT, latencyMs }
}

function groupOf(part: string): CrowdGroup {
  const [, f16] = HALVES.exec(part) ?? []
  const [, count = '', words = '', speed, unit] = MACHINES.exec(part.replace(HALVES, '')) ?? []
  if (words === '') throw uncounted(part)
  const kind = kindOf(words)
  if (kind === undefined) throw unknown(words, part)
  if (Number(count) < 1) throw refused(`one ${kind.name} at least`, `"${part}"`, 'leave it out')
  const hasHalves = f16 === undefined ? kind.isSoftware !== true : f16.toLowerCase() === 'with'
  return { count: Number(count), kind, ...speedOf(part, speed, unit), f16: hasHalves }
}

function speedOf(part: string, speed: string | undefined, unit = ''): Pick<CrowdGroup, 'samplesPerSecond' | 'gflops'> {
  if (speed === undefined) return {}
  const value = Number(speed)
  if (!(value > 0 && value <= 1e9)) throw refused('a speed above 0', `"${part}"`, 'write "4 laptops at 250 samples/s"')
  if (unit.toLowerCase() === 'samples') return { samplesPerSecond: value }
  return { gflops: unit.toLowerCase() === 'tflop' ? 1000 * value : value }
}

/** Also with other words before it, such as "old laptops": those say nothing that is known, so they are refused. */
function kindOf(words: string): MachineKind | undefined {
  const wanted = singular(words)
  return MACHINE_KINDS.find((kind) => [kind.name.toLowerCase(), ...kind.words].includes(wanted))
}

function singular(words: string): string {
  return words
    .toLowerCase()
    .split(' ')
    .map((word) => (word.length > 2 ? word.replace(/s$/, '') : word))
    .join(' ')
}

function unknown(words: string, part: string): GridError {
  const names = MACHINE_KINDS.flatMap(({ name, words: others }) => [name, ...others])
  const meant = nearest(singular(words), names)
  const kind = meant === undefined ? undefined : kindOf(meant)
  return refused(
    `a kind of machine (${MACHINE_KINDS.map(({ plural }) => plural).join(', ')})`,
    `"${part}"`,
    kind === undefined ? `write for example "${EXAMPLE}"` : `did you mean "${kind.plural}"?`,
  )
}

function uncounted(part: string): GridError {
  const kind = kindOf(part)
  const meant = kind === undefined ? nearest(singular(part), Object.keys(LINES)) : undefined
  const hint = meant === undefined ? `write for example "${EXAMPLE}"` : `did you mean "${meant}"?`
  return refused(
    'a count and a kind of machine, or a line (home lines, fibre, mobile, lab, "20/60 Mbit/s 15 ms")',
    `"${part}"`,
    kind === undefined ? hint : `write how many, as in "5 ${kind.plural}"`,
  )
}

function refused(expected: string, got: string, cure: string): GridError {
  return new GridError('usage', `expected ${expected}, got ${got}; ${cure}`)
}
