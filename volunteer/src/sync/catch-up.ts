// Where a member gets the target of a ballot (R7): from one holder, else from the next, and from the coordinator's checkpoint last.
import { type FetchRequest, GridError, type MemberId, type VersionRef } from '@starling-grid/protocol'
import type { LinkSet } from '../collective/link-set.ts'
import { sha256Of } from '../data/shards.ts'
import type { HeldVersion } from '../recovery/held-version.ts'
import type { StateFetch } from '../recovery/transfer.ts'
import type { MemberEffect } from './member-state.ts'

export interface CatchUpSources {
  readonly links: LinkSet
  readonly fetch: StateFetch
  readonly held: HeldVersion
  /** the state of a version from the coordinator's store */
  fromCoordinator(version: VersionRef, maxBytes: number): Promise<Uint8Array>
}

type Effect = Extract<MemberEffect, { type: 'fetch-state' | 'fetch-reduced' }>

/** Room for names, shapes and scalars beside the vectors of a state. */
const HEADER_BYTES = 1024 * 1024
/** parameters and, at most, two optimizer slots; one more for good measure */
const VECTORS = 4

/**
 * Bytes of the whole state (not yet decoded), or of the reduced gradient (checked against the digest in its record).
 * @throws GridError 'link-lost' when no source could serve
 */
export async function catchUpBytes(effect: Effect, sources: CatchUpSources, signal: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
  const failures: string[] = []
  for (const source of effect.sources) {
    try {
      return await fromMember(effect, source, sources, signal)
    } catch (error) {
      if (signal.aborted) throw error
      failures.push(error instanceof Error ? error.message : String(error))
    }
  }
  if (effect.type === 'fetch-state' && effect.coordinatorHolds) return fromStore(effect.target, sources)
  throw new GridError('link-lost', `nobody could send version ${effect.target.v}: ${failures.join('; ') || 'no source was named'}`)
}

async function fromMember(effect: Effect, source: MemberId, { links, fetch, held }: CatchUpSources, signal: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
  const kind: FetchRequest['kind'] = effect.type === 'fetch-state' ? 'state' : 'reduced'
  const vector = Float32Array.BYTES_PER_ELEMENT * held.layout.total
  await links.ensure(source, true, signal)
  const bytes = await fetch.fetch({ kind, version: effect.target, generation: effect.gen, maxBytes: kind === 'state' ? VECTORS * vector + HEADER_BYTES : vector }, source)
  if (kind === 'reduced' && (bytes.byteLength !== vector || (await sha256Of(bytes)) !== gradDigestOf(effect))) throw new GridError('checksum', `the reduced gradient from ${source.slice(0, 8)} does not match its record`)
  return bytes
}

async function fromStore(target: VersionRef, { held, fromCoordinator }: CatchUpSources): Promise<Uint8Array<ArrayBuffer>> {
  return new Uint8Array(await fromCoordinator(target, VECTORS * Float32Array.BYTES_PER_ELEMENT * held.layout.total + HEADER_BYTES))
}

function gradDigestOf(effect: Effect): string | undefined {
  return effect.type === 'fetch-reduced' ? effect.record.gradDigest : undefined
}
