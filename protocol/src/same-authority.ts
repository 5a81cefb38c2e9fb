// Which other coordinators a volunteer or a command follows the one that it knows to: those at a name that the owner of
// the known name rules. A coordinator can send its volunteers to no machine of others.
import { isLoopbackUrl } from './local-address.ts'

/** Coordinators that share a database: as many as a volunteer is told of. */
export const MAX_COORDINATORS = 32
/** Labels that names of one owner share at least: `example.org`. */
const LEAST_SHARED_LABELS = 2

/**
 * Whether `other` is an address of the same authority as `known`: the same host, another address of this machine where
 * that is known, a name below the known one, or one that differs from it in its first label alone. Never from https to
 * http.
 */
export function isSameAuthority(known: string, other: string): boolean {
  const [from, to] = [originAt(known), originAt(other)]
  if (from === undefined || to === undefined) return false
  if (from.protocol === 'https:' && to.protocol !== 'https:') return false
  if (from.hostname === to.hostname) return true
  if (isLoopbackUrl(known)) return isLoopbackUrl(other)
  return isName(from.hostname) && isName(to.hostname) && areOfOneOwner(from.hostname, to.hostname)
}

/** Undefined for anything that is no bare http address. */
function originAt(text: string): URL | undefined {
  if (!URL.canParse(text)) return undefined
  const url = new URL(text)
  const isWeb = url.protocol === 'http:' || url.protocol === 'https:'
  const isBare = url.username === '' && url.password === ''
  return isWeb && isBare ? url : undefined
}

/** An address has no owner that its neighbour shares. */
function isName(host: string): boolean {
  return !host.startsWith('[') && !/^[\d.]+$/.test(host)
}

function areOfOneOwner(known: string, other: string): boolean {
  if (known.split('.').length >= LEAST_SHARED_LABELS && other.endsWith(`.${known}`)) return true
  const [shared, otherShared] = [known, other].map((host) => host.split('.').slice(1))
  return (shared?.length ?? 0) >= LEAST_SHARED_LABELS && shared?.join('.') === otherShared?.join('.')
}
