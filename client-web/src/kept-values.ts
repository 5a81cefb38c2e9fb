// A few small values that outlive a visit, by name, in IndexedDB: it takes keys that no script can read, which
// localStorage does not. Where the browser gives no storage nothing is kept, and every caller has a value without it.
import { createStore, get, update, type UseStore } from 'idb-keyval'

let opened: UseStore | undefined

function store(): UseStore {
  opened ??= createStore('starling', 'kept')
  return opened
}

/** undefined: not there, or no storage. */
export async function readKept<T>(name: string): Promise<T | undefined> {
  return attempt(() => get<T>(name, store()))
}

/** What `change` makes of what is kept, in one transaction. */
export async function keepChanged<T>(name: string, change: (kept: T | undefined) => T): Promise<void> {
  await attempt(() => update<T>(name, change, store()))
}

/** Keeps it unless another tab was first, in one transaction. Returns what is kept. */
export async function keepFirst<T>(name: string, value: T): Promise<T> {
  await attempt(() => update<T>(name, (kept) => kept ?? value, store()))
  return (await readKept<T>(name)) ?? value
}

/** A storage that fails is one that keeps nothing; `indexedDB` itself may be missing, or throw when it is touched. */
async function attempt<T>(ask: () => Promise<T>): Promise<T | undefined> {
  try {
    return await ask()
  } catch {
    opened = undefined
    return undefined
  }
}
