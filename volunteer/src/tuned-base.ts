// The imported model that a job tunes adapters beside: shards come from members first, and from the coordinator what
// they do not give; later this member gives them to others. Pages load it when there is such a job.
import type { ModelSpec } from '@starling-grid/model'
import { type MemberId, type OnWire, sha256Name } from '@starling-grid/protocol'
import type { CoordinatorHttp } from './coordinator-http.ts'
import { openBaseModel } from './data/base-model.ts'
import type { FrozenSource } from './graph/frozen-source.ts'
import type { VolunteerHost } from './host.ts'
import type { LinkSet } from './link/link-set.ts'
import { DEFAULT_LIMITS } from './own-limits.ts'
import { BaseFetch, type BaseFetchParts, type BaseNews, type BaseProgress } from './recovery/base-fetch.ts'
import { BaseServer } from './recovery/base-server.ts'
import { UploadShare } from './recovery/upload-share.ts'

export interface TunedBase {
  readonly frozen: FrozenSource | undefined
  /** Where its bytes came from, for people; undefined: all were here. */
  from(): string | undefined
  /** what newcomers were given counts as long as this member lends */
  readonly uploads: UploadShare
  /** gives shards to newcomers */
  readonly server: BaseServer
  /** It is here: newcomers, also those that asked during the preparation, get it over these links from now on. */
  moveTo(links: LinkSet): void
  /** It is read: the links that it came over close. */
  close(): void
}

export interface TunedBaseParts extends Pick<BaseFetchParts, 'network' | 'linkOpenMs' | 'openRelay'> {
  readonly host: Pick<VolunteerHost, 'clock' | 'shards' | 'limits' | 'relaysOnly'>
  readonly http: Pick<CoordinatorHttp, 'shard'>
  /** Asks which members have the base of this job; `hear` takes what the coordinator says of it. */
  seekBase(hear: (news: OnWire<BaseNews>) => void): void
  /** how far the base is, for people */
  onBase(text: string): void
}

/** @throws GridError 'shard-corrupt', or what the coordinator's answers throw */
export async function openTunedBase(spec: ModelSpec, parts: TunedBaseParts): Promise<TunedBase> {
  const { clock, shards: cache, limits = DEFAULT_LIMITS, relaysOnly = false } = parts.host
  const uploads = new UploadShare(clock, limits.uploadBytesPerHour)
  const told: { here: string; sources?: string } = { here: '' }
  const tell = (change: Partial<typeof told>): void => {
    Object.assign(told, change)
    parts.onBase(`fetching the base model${told.here}${told.sources === undefined ? '' : `; ${told.sources}`}`)
  }
  const guests: MemberId[] = []
  const hear = (news: OnWire<BaseNews>): void => {
    if (news.type === 'base-sources') return fetch.found(news.members)
    guests.push(news.member)
    links.welcome(news.member)
  }
  const fetch = new BaseFetch({
    ...parts,
    clock,
    // One whose links all go through the coordinator would cost it the same bytes twice.
    seek: () => (relaysOnly ? fetch.found([]) : parts.seekBase(hear)),
    fromCoordinator: (name) => parts.http.shard(name),
    onProgress: (progress) => tell({ sources: progressText(progress) }),
    onQuestion: (from, frame) => void server.serve(from, frame),
  })
  let links = fetch.links
  const server = new BaseServer({
    base: sha256Name(spec.base ?? ''),
    uploads,
    shardOf: (name) => cache.get(name),
    send: (to, frame) => links.send(to, frame),
    waiting: (to) => links.waiting(to),
    isComing: () => links === fetch.links,
  })
  try {
    const places = { fetchBytes: fetch.shard, cache }
    const frozen = await openBaseModel(spec, places, (done, total) =>
      tell({ here: `: ${megabytes(done)} of ${megabytes(total)}` }),
    )
    return {
      frozen,
      uploads,
      from: () => told.sources,
      close: () => fetch.close(),
      server,
      moveTo(next) {
        links = next
        for (const guest of guests) links.welcome(guest)
      },
    }
  } catch (error) {
    fetch.close()
    throw error
  }
}

function progressText({ fromMembers, fromCoordinator, members, trouble }: BaseProgress): string {
  const given = `${megabytes(fromMembers)} from ${members} ${members === 1 ? 'member' : 'members'}`
  const why = trouble === undefined ? '' : ` (${trouble})`
  return fromCoordinator === 0 ? `${given}${why}` : `${given}, ${megabytes(fromCoordinator)} from the coordinator${why}`
}

function megabytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(1)} MB`
}
