// The page of another coordinator that shares the jobs of this one. Its scripts may not ask that one, so it opens
// there.
import { isSameAuthority } from '@starling-grid/protocol'

export interface ShownThere {
  readonly job: string | undefined
  /** of the owner, good for all coordinators of one authority */
  readonly token: string | undefined
  /** this page's coordinator does not answer: the other one is not to send it back */
  readonly isGone?: boolean
}

/** Leaves this page for the same one there. Nothing happens where the address is of another authority. */
export function openPageAt(url: string, { job, token, isGone = false }: ShownThere): void {
  if (!isSameAuthority(location.origin, url)) return
  const query = new URLSearchParams({
    ...(job === undefined ? {} : { job }),
    ...(isGone ? { left: location.origin } : {}),
  })
  const hash = token === undefined ? '' : `#${new URLSearchParams({ token })}`
  location.replace(`${url}${location.pathname}?${query}${hash}`)
}
