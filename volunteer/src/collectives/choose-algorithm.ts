// Which algorithm a collective runs with, predicted from its size, the number of ranks and the measured links. Pure,
// and exact arithmetic only: every rank asks the same question and must get the same answer.
import { GridError } from '@starling-grid/protocol'
import { type Algorithm, algorithmsOf, type Collective, largestPower, treeRounds } from './moves.ts'

/** The slowest link of a group. */
export interface LinkQuality {
  /** milliseconds of a small message, one way */
  readonly latencyMs: number
  /** bytes that a rank sends in a millisecond */
  readonly bytesPerMs: number
}

/** Two processes of one machine, or of one room: what is assumed until a group has measured its links. */
export const USUAL_LINK: LinkQuality = { latencyMs: 1, bytesPerMs: 50_000 }

/**
 * Payload bytes of one frame: large enough that Chromium is not held up by messages, small enough to fill a pipeline.
 * With its header it is below 128 KiB, from where on allocators map fresh memory for every buffer.
 */
export const CHUNK_BYTES = 120 * 1024
/** Links of one rank beyond which other algorithms are preferred: each costs memory, sockets and time to open. */
const MAX_LINKS = 15
/** Predictions that differ by less are equal: then fewer links decide, since each has to be opened and kept alive. */
const NEAR = 1.1

export interface AlgorithmQuestion {
  readonly collective: Collective
  /** of the whole vector as it travels, encoded */
  readonly bytes: number
  readonly size: number
  readonly link?: LinkQuality
  /** all that the collective has, when absent */
  readonly among?: readonly Algorithm[]
}

export interface AlgorithmChoice {
  readonly algorithm: Algorithm
  /** for people: what each was predicted to take */
  readonly reason: string
  readonly predictedMs: number
}

/**
 * @throws GridError 'unsupported' when none of `among` is an algorithm of the collective
 * @example chooseAlgorithm({ collective: 'allReduce', bytes: 4e6, size: 4 }).algorithm // 'ring'
 */
export function chooseAlgorithm({
  collective,
  bytes,
  size,
  link = USUAL_LINK,
  among = algorithmsOf(collective),
}: AlgorithmQuestion): AlgorithmChoice {
  const possible = algorithmsOf(collective).filter((algorithm) => among.includes(algorithm))
  const modest = possible.filter((algorithm) => linksOf(algorithm, size) <= MAX_LINKS)
  const costs = (modest.length > 0 ? modest : possible).map((algorithm) => ({
    algorithm,
    links: linksOf(algorithm, size),
    predictedMs: predict(algorithm, { collective, bytes, size, link }),
  }))
  const best = costs.reduce((least, { predictedMs }) => Math.min(least, predictedMs), Infinity)
  const [chosen] = costs
    .filter(({ predictedMs }) => predictedMs <= NEAR * best)
    .sort((a, b) => a.links - b.links || a.predictedMs - b.predictedMs)
  if (chosen === undefined)
    throw new GridError(
      'unsupported',
      `expected ${algorithmsOf(collective).join(', ')} for ${collective}, got ${among.join(', ')}`,
    )
  const { algorithm, predictedMs, links } = chosen
  const predictions = costs.map((one) => `${one.algorithm} ${inMs(one.predictedMs)}`).join(', ')
  const because =
    predictedMs === best
      ? 'is predicted to be the fastest'
      : `is hardly slower than the fastest and needs ${links} links a rank`
  return {
    algorithm,
    predictedMs,
    reason: `${algorithm} ${because} for ${bytes} bytes over ${size} ranks (${predictions})`,
  }
}

interface Case extends AlgorithmQuestion {
  readonly link: LinkQuality
}

/** Links of the rank that has the most. */
function linksOf(algorithm: Algorithm, size: number): number {
  if (algorithm === 'ring') return Math.min(2, size - 1)
  return algorithm === 'direct' || algorithm === 'star' ? size - 1 : treeRounds(size)
}

/** Milliseconds until the last rank is done. */
function predict(algorithm: Algorithm, question: Case): number {
  const { collective, size } = question
  if (size === 1) return 0
  if (collective === 'allReduce') return allReduceMs(algorithm, question)
  if (collective === 'reduceScatter' || collective === 'allGather')
    return algorithm === 'ring' ? ringMs(size - 1, question) : shareMs(question)
  if (collective === 'broadcast' || collective === 'reduce') return rootedMs(algorithm, question)
  return shareMs(question)
}

function allReduceMs(algorithm: Algorithm, question: Case): number {
  const { bytes, size, link } = question
  const power = largestPower(size)
  const fold = size === power ? 0 : 2 * wholeMs(question)
  switch (algorithm) {
    case 'ring':
      return ringMs(2 * (size - 1), question)
    case 'direct':
      return 2 * shareMs(question)
    case 'butterfly':
      return fold + 2 * treeRounds(power) * link.latencyMs + (2 * (power - 1) * bytes) / power / link.bytesPerMs
    case 'recursive-doubling':
      return fold + treeRounds(power) * wholeMs(question)
    case 'tree':
    case 'star':
      return 2 * rootedMs(algorithm, question)
    default:
      return algorithm satisfies never
  }
}

/**
 * One hop after the other. A hop's chunks follow each other, so that latency counts only where a segment is over too
 * soon to hide it.
 */
function ringMs(hops: number, { bytes, size, link }: Case): number {
  const segment = bytes / size
  return hops * Math.max(segment / link.bytesPerMs, Math.min(segment, CHUNK_BYTES) / link.bytesPerMs + link.latencyMs)
}

/** Each rank sends every other rank its part. */
function shareMs({ bytes, size, link }: Case): number {
  return link.latencyMs + ((size - 1) * bytes) / size / link.bytesPerMs
}

function wholeMs({ bytes, link }: Case): number {
  return link.latencyMs + bytes / link.bytesPerMs
}

function rootedMs(algorithm: Algorithm, question: Case): number {
  const { bytes, size, link } = question
  if (algorithm === 'tree') return treeRounds(size) * wholeMs(question)
  if (algorithm === 'star') return link.latencyMs + ((size - 1) * bytes) / link.bytesPerMs
  return wholeMs(question) + (size - 2) * (link.latencyMs + Math.min(bytes, CHUNK_BYTES) / link.bytesPerMs)
}

function inMs(milliseconds: number): string {
  return `${Number(milliseconds.toPrecision(3))} ms`
}
