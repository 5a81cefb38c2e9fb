// Where a member gets the target of a ballot (R7): from several holders at once, and from the coordinator's checkpoint
// last.
import {
  type FetchRequest,
  GridError,
  type MemberId,
  type Sha256,
  type VersionRef,
  sha256Of,
  turnedBy,
} from '@starling-grid/protocol'
import { bytesOf } from '../codec/numbers.ts'
import type { MemberEffect } from '../member/member-state.ts'
import type { LocalVersion } from './local-version.ts'
import type { StateFetch } from './state-fetch.ts'

export interface CatchUpSources {
  readonly self: MemberId
  readonly fetch: StateFetch
  readonly held: LocalVersion
  /** a link to this member is open already */
  isLinked(member: MemberId): boolean
  /** the state of a version from the coordinator's store, from a byte on */
  fromCoordinator(
    version: VersionRef,
    options: { readonly from: number; readonly maxBytes: number },
  ): Promise<Uint8Array>
}

export type CatchUpEffect = Extract<MemberEffect, { type: 'fetch-state' | 'fetch-reduced' }>

/** Room for names, shapes and scalars beside the vectors of a state. */
const HEADER_BYTES = 1024 * 1024
/** parameters and, at most, two optimizer slots; one more for good measure */
const VECTORS = 4

/**
 * Bytes of the whole state (not yet decoded), or of the reduced gradient (checked against the digest in its record).
 * @throws GridError 'link-lost' when no source could serve, 'checksum' when what came is something else
 */
export async function catchUpBytes(
  effect: CatchUpEffect,
  { self, fetch, held, isLinked, fromCoordinator }: CatchUpSources,
  signal: AbortSignal,
): Promise<Uint8Array<ArrayBuffer>> {
  const kind: FetchRequest['kind'] = effect.type === 'fetch-state' ? 'state' : 'reduced'
  const { target: version, generation } = effect
  const vector = Float32Array.BYTES_PER_ELEMENT * held.layout.total
  const maxBytes = kind === 'state' ? VECTORS * vector + HEADER_BYTES : vector
  const rest =
    effect.type === 'fetch-state' && effect.coordinatorHolds
      ? (from: number) => fromCoordinator(version, { from, maxBytes })
      : undefined
  const bytes = await fetch.fetch(
    { kind, version, generation, maxBytes },
    inTurn(self, effect.sources, isLinked),
    signal,
    rest,
  )
  if (
    effect.type === 'fetch-reduced' &&
    (bytes.byteLength !== vector || (await sha256Of(bytes)) !== effect.record.gradDigest)
  )
    throw new GridError(
      'checksum',
      `expected the reduced gradient in the record of version ${version.v}, got other bytes`,
    )
  return bytes
}

/** Of a job that begins with given parameters. @throws GridError 'digest-mismatch' when these are others */
export async function requireInitial(parameters: Float32Array, initial: Sha256): Promise<void> {
  const found = await sha256Of(bytesOf(parameters))
  if (found === initial) return
  throw new GridError(
    'digest-mismatch',
    `expected the parameters ${initial.slice(0, 12)} as version 0, got ${found.slice(0, 12)} from the coordinator`,
  )
}

/** Members with an open link first. */
export function inTurn(
  self: MemberId,
  sources: readonly MemberId[],
  isLinked: (member: MemberId) => boolean,
): MemberId[] {
  const turned = turnedBy(self, sources)
  return [...turned.filter(isLinked), ...turned.filter((source) => !isLinked(source))]
}
