// A tab that lends follows its job to another coordinator by opening that one's page, which then lends on with the same
// name and limits. The server takes `lend` out of an address to which no page of the same site led (coordinator's
// pages).
import { isSameAuthority, jobId } from '@starling-grid/protocol'
import type { Lent } from '../worker-messages.ts'
import { rememberLimits, type VisitorLimits } from './visitor-limits.ts'
import { rememberName } from './visitor-name.ts'

/** What goes along, behind the # that no server sees. */
interface Luggage {
  readonly name: string
  readonly limits: VisitorLimits
  /** the visitor lends to this job alone */
  readonly isChosen: boolean
}

/** Leaves this page. Nothing happens where the address is of another authority. */
export function goOnAt(url: string, { name, limits, job, sentFor }: Lent, invite: string | undefined): void {
  if (!isSameAuthority(location.origin, url)) return
  const shown = job ?? sentFor
  const query = new URLSearchParams({
    ...(shown === undefined ? {} : { job: shown }),
    lend: 'on',
    left: location.origin,
  })
  const luggage: Luggage = { name, limits, isChosen: job !== undefined }
  const hash = new URLSearchParams({ lent: JSON.stringify(luggage), ...(invite === undefined ? {} : { invite }) })
  location.replace(`${url}/?${query}#${hash}`)
}

/**
 * What a page before this one lent; undefined: a visitor who has not begun. It leaves the address at once, and an
 * invite stays there.
 */
export function takeLuggage(): Lent | undefined {
  const query = new URLSearchParams(location.search)
  const hash = new URLSearchParams(location.hash.slice(1))
  const luggage = luggageIn(hash.get('lent'))
  if (luggage === undefined) return undefined
  const isMeant = query.get('lend') === 'on'
  query.delete('lend')
  query.delete('left')
  hash.delete('lent')
  history.replaceState(null, '', location.pathname + prefixed('?', query) + prefixed('#', hash))
  if (!isMeant) return undefined
  const named = query.get('job')
  const job = named === null || named === '' ? undefined : jobId(named)
  rememberLimits(luggage.limits)
  const wish = luggage.isChosen ? { job } : { job: undefined, sentFor: job }
  return { name: rememberName(luggage.name), limits: luggage.limits, ...wish }
}

function prefixed(mark: string, parts: URLSearchParams): string {
  return parts.size === 0 ? '' : `${mark}${parts}`
}

function luggageIn(text: string | null): Luggage | undefined {
  try {
    const { name, limits, isChosen } = JSON.parse(text ?? '') as Partial<Luggage>
    const { memoryBytes, uploadBytesPerHour, diskBytes, relaysOnly } = limits ?? {}
    const bytes = [memoryBytes, uploadBytesPerHour, diskBytes]
    const isWhole = typeof name === 'string' && bytes.every(isSize) && typeof relaysOnly === 'boolean'
    return isWhole ? ({ name, limits, isChosen: isChosen === true } as Luggage) : undefined
  } catch {
    return undefined
  }
}

const isSize = (value: unknown): boolean => typeof value === 'number' && value >= 0
