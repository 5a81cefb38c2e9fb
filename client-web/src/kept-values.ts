// A few small values that outlive a visit, by name, in IndexedDB: it takes keys that no script can read, which
// localStorage does not. Where the browser gives no storage nothing is kept, and every caller has a value without it.
const DATABASE = 'starling'
const STORE = 'kept'

/** undefined: not there, or no storage. */
export async function readKept<T>(name: string): Promise<T | undefined> {
  return transact('readonly', (store) => store.get(name)).catch(() => undefined) as Promise<T | undefined>
}

/** Keeps it; a value of that name is replaced. */
export async function keep(name: string, value: unknown): Promise<void> {
  await transact('readwrite', (store) => store.put(value, name)).catch(() => undefined)
}

/** Keeps it unless another tab was first. Returns what is kept. */
export async function keepFirst<T>(name: string, value: T): Promise<T> {
  await transact('readwrite', (store) => store.add(value, name)).catch(() => undefined)
  return (await readKept<T>(name)) ?? value
}

async function transact(mode: IDBTransactionMode, ask: (store: IDBObjectStore) => IDBRequest): Promise<unknown> {
  const database = await open()
  try {
    return await settled(ask(database.transaction(STORE, mode).objectStore(STORE)))
  } finally {
    database.close()
  }
}

function open(): Promise<IDBDatabase> {
  const request = indexedDB.open(DATABASE, 1)
  request.onupgradeneeded = () => void request.result.createObjectStore(STORE)
  return settled(request)
}

function settled<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result)
    request.onerror = () => reject(request.error ?? new Error('the browser gives no reason'))
  })
}
