// The owner's token comes behind the # of the link that `starling start` prints, which no server sees. It leaves the
// address at once and stays in this tab, so that a reload shows the same.
const KEY = 'starling-owner-token'

/** Undefined for those who were given no such link. */
export function takeOwnerToken(): string | undefined {
  const given = new URLSearchParams(location.hash.slice(1)).get('token')
  if (given === null) return sessionStorage.getItem(KEY) ?? undefined
  history.replaceState(null, '', `${location.pathname}${location.search}`)
  sessionStorage.setItem(KEY, given)
  return given
}

/** It was refused: perhaps it is another coordinator's. */
export function forgetOwnerToken(): void {
  sessionStorage.removeItem(KEY)
}
