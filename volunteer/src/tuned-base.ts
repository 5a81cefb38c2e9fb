// The imported model that a job tunes adapters beside: shards come from members first, and from the coordinator what
// they do not give; later this member gives them to others. Pages load it when there is such a job.
import type { ModelSpec } from '@starling-grid/model'
import { type MemberId, sha256Name } from '@starling-grid/protocol'
import type { CoordinatorHttp } from './coordinator-http.ts'
import { openBaseModel } from './data/base-model.ts'
import type { FrozenSource } from './graph/frozen-source.ts'
import type { VolunteerHost } from './host.ts'
import type { LinkSet } from './link/link-set.ts'
import { BaseFetch, type BaseFetchParts, type BaseProgress } from './recovery/base-fetch.ts'
import { BaseServer } from './recovery/base-server.ts'
import type { UploadShare } from './recovery/upload-share.ts'

export interface TunedBase {
  readonly frozen: FrozenSource | undefined
  /** Where its bytes came from, for people; undefined: all were here. */
  from(): string | undefined
  /** Gives shards to newcomers. */
  server(links: () => LinkSet, uploads: UploadShare): BaseServer
  /** It is read: the links that it came over close. */
  close(): void
}

export interface TunedBaseParts extends Pick<BaseFetchParts, 'network' | 'linkOpenMs' | 'openRelay'> {
  readonly host: Pick<VolunteerHost, 'clock' | 'shards'>
  readonly http: Pick<CoordinatorHttp, 'shard'>
  /** members that have the base of this job; none: the coordinator did not answer */
  seekBase(signal: AbortSignal): Promise<readonly MemberId[]>
  /** how far the base is, for people */
  onBase(text: string): void
}

/** @throws GridError 'shard-corrupt', or what the coordinator's answers throw */
export async function openTunedBase(spec: ModelSpec, parts: TunedBaseParts): Promise<TunedBase> {
  const { clock, shards: cache } = parts.host
  const told: { here: string; sources?: string } = { here: '' }
  const tell = (change: Partial<typeof told>): void => {
    Object.assign(told, change)
    parts.onBase(`fetching the base model${told.here}${told.sources === undefined ? '' : `; ${told.sources}`}`)
  }
  const fetch = new BaseFetch({
    ...parts,
    clock,
    seek: parts.seekBase,
    fromCoordinator: (name) => parts.http.shard(name),
    onProgress: (progress) => tell({ sources: progressText(progress) }),
  })
  try {
    const places = { fetchBytes: fetch.shard, cache }
    const frozen = await openBaseModel(spec, places, (done, total) =>
      tell({ here: `: ${megabytes(done)} of ${megabytes(total)}` }),
    )
    return {
      frozen,
      from: () => told.sources,
      close: () => fetch.close(),
      server: (links, uploads) => serverOf(spec, parts, { links, uploads }),
    }
  } catch (error) {
    fetch.close()
    throw error
  }
}

function serverOf(
  { base = '' }: ModelSpec,
  { host: { shards } }: TunedBaseParts,
  { links, uploads }: { readonly links: () => LinkSet; readonly uploads: UploadShare },
): BaseServer {
  return new BaseServer({
    base: sha256Name(base),
    uploads,
    shardOf: (name) => shards.get(name),
    send: (to, frame) => links().send(to, frame),
    waiting: (to) => links().waiting(to),
  })
}

function progressText({ fromMembers, fromCoordinator, members, trouble }: BaseProgress): string {
  const given = `${megabytes(fromMembers)} from ${members} ${members === 1 ? 'member' : 'members'}`
  const why = trouble === undefined ? '' : ` (${trouble})`
  return fromCoordinator === 0 ? `${given}${why}` : `${given}, ${megabytes(fromCoordinator)} from the coordinator${why}`
}

function megabytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(1)} MB`
}
