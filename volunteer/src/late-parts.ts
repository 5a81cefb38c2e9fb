// Parts of the program that a page fetches when a job needs them. Each is fetched once and is at hand from then on.

/** The part; after a fetch that failed, the next call fetches again. */
function once<T>(fetchPart: () => Promise<T>): () => Promise<T> {
  let part: Promise<T> | undefined
  return () => {
    part ??= fetchPart().catch((error: unknown) => {
      part = undefined
      throw error
    })
    return part
  }
}

/** of a run without a ring: most jobs begin without it */
export const asyncModes = once(() => import('./async/async-mode.ts'))
/** of jobs that train in local rounds */
export const localRounds = once(() => import('./local/local-round.ts'))
/** of jobs that tune an imported model */
export const baseModels = once(() => import('./tuned-base.ts'))
/** hardly any volunteer needs it */
export const relayLinks = once(() => import('./link/relay-link.ts'))

/** For simulations: files that are read later would take real time, and events would come in another order. */
export async function fetchLateParts(): Promise<void> {
  await Promise.all([asyncModes(), localRounds(), baseModels(), relayLinks()])
}
