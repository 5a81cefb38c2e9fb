// The code of an invite comes behind the # of its link, which no server sees. It leaves the address at once and stays
// in this browser, so that a visitor who comes back needs no link.
const KEY = 'starling-invite'

/** where the browser keeps nothing, it is good for this visit */
let taken: string | undefined

/** Undefined for a visitor without an invite. */
export function visitorInvite(): string | undefined {
  try {
    return taken ?? localStorage.getItem(KEY) ?? undefined
  } catch {
    return taken
  }
}

/** Once at first, and again when another link is opened in this tab. */
export function takeInvite(): void {
  const given = new URLSearchParams(location.hash.slice(1)).get('invite')
  if (given === null) return
  history.replaceState(null, '', `${location.pathname}${location.search}`)
  taken = given
  try {
    localStorage.setItem(KEY, given)
  } catch {
    // no storage
  }
}
