// Tokens of owners: who may do what with whose jobs. The first one, of the coordinator's file, may do everything. The
// journal's store keeps the others by their hash. They are valid until they expire or are revoked.
import { GridError, plainText, type TokenScope, type TokenView } from '@starling-grid/protocol'
import type { CoordinatorClock } from '../clock.ts'
import type { StateStore } from '../journal/state-store.ts'
import { hashOf, idIn, matches, newSecret } from './secrets.ts'

const PREFIX = 'token/'
const MAX_TOKENS = 1000
/** ms between two notes of the last use of one token: each is a write to the disk */
const NOTE_MS = 60_000
/** ms between looks for tokens that have expired */
const CHECK_MS = 1000

/** Who holds a good token. */
export interface Holder {
  /** of its token; undefined: the first one's */
  readonly id: string | undefined
  readonly scopes: readonly TokenScope[]
}

interface KeptToken {
  readonly view: TokenView
  readonly hash: string
}

export interface TokenBookParts {
  readonly clock: CoordinatorClock
  readonly store: StateStore
  /** the first token */
  readonly first: string
}

/** Whether what this scope allows is allowed to the holder. */
export function allows({ scopes }: Holder, scope: TokenScope): boolean {
  if (scopes.includes('admin') || scopes.includes(scope)) return true
  return scope === 'jobs:read' && scopes.includes('jobs:write')
}

/** Whether a job belongs to the holder. `ownedBy`: the token that submitted it; absent: the first one. */
export function owns(holder: Holder, ownedBy: string | undefined): boolean {
  return allows(holder, 'admin') || (holder.id !== undefined && holder.id === ownedBy)
}

export class TokenBook {
  readonly #parts: TokenBookParts
  readonly #firstHash: string
  readonly #tokens = new Map<string, KeptToken>()
  /** what ends with a token: sockets and streams of its holder */
  readonly #open = new Map<string, Set<() => void>>()
  /** ids that are being written */
  readonly #writing = new Set<string>()
  #stopChecking = (): void => undefined

  constructor(parts: TokenBookParts) {
    this.#parts = parts
    this.#firstHash = hashOf(parts.first)
  }

  /** @throws GridError 'disk-failed' */
  async start(): Promise<void> {
    for (const { value } of await this.#parts.store.values(PREFIX)) {
      const token = JSON.parse(value) as KeptToken // written by #keep
      this.#tokens.set(token.view.id, token)
    }
    this.#stopChecking = this.#parts.clock.every(CHECK_MS, () => {
      for (const id of this.#tokens.keys()) if (this.#isOver(id)) this.#end(id)
    })
  }

  stop(): void {
    this.#stopChecking()
  }

  /** Another coordinator of the same store may have made or revoked some. @throws GridError 'disk-failed' */
  async reload(): Promise<void> {
    const settled = [...this.#tokens.keys()].filter((id) => !this.#writing.has(id))
    const values = await this.#parts.store.values(PREFIX)
    const kept = values.map(({ value }) => JSON.parse(value) as KeptToken) // written by #keep
    const ids = new Set(kept.map(({ view }) => view.id))
    for (const id of settled) if (!ids.has(id) && this.#tokens.delete(id)) this.#end(id)
    // One that was revoked here meanwhile is not there any more.
    for (const token of kept)
      if (!settled.includes(token.view.id) || this.#tokens.has(token.view.id)) this.#tokens.set(token.view.id, token)
  }

  /** Whose token this is; undefined for a wrong, expired or revoked one. */
  holder(text: string): Holder | undefined {
    if (matches(text, this.#firstHash)) return { id: undefined, scopes: ['admin'] }
    const token = this.#tokens.get(idIn(text) ?? '')
    if (token === undefined || !matches(text, token.hash) || this.#isOver(token.view.id)) return undefined
    this.#note(token)
    return { id: token.view.id, scopes: token.view.scopes }
  }

  /** The token itself is in no later answer. Durable when it resolves. @throws GridError 'usage', 'disk-failed' */
  async create(asked: {
    readonly name?: string | undefined
    readonly scopes: readonly TokenScope[]
    readonly expiresAt?: number | undefined
  }): Promise<{ readonly token: string; readonly view: TokenView }> {
    const at = this.#parts.clock.wallTime()
    if (this.#tokens.size >= MAX_TOKENS)
      throw new GridError(
        'usage',
        `expected at most ${MAX_TOKENS} tokens, got one more; revoke those that are not used`,
      )
    if (asked.expiresAt !== undefined && asked.expiresAt <= at)
      throw new GridError('usage', 'expected `expiresAt` in the future, got a moment in the past; choose a later one')
    const { id, text, hash } = newSecret('t')
    const view: TokenView = {
      id,
      name: plainText(asked.name ?? ''),
      scopes: [...new Set(asked.scopes)],
      createdAt: at,
      expiresAt: asked.expiresAt ?? null,
      lastUsedAt: null,
    }
    await this.#keep({ view, hash })
    return { token: text, view }
  }

  list(): readonly TokenView[] {
    return [...this.#tokens.values()].map(({ view }) => view)
  }

  /** Good for nothing at once, and what its holder has open ends; false: there is no such token. */
  async revoke(id: string): Promise<boolean> {
    if (!this.#tokens.delete(id)) return false
    this.#end(id)
    await this.#parts.store.remove(PREFIX + id)
    return true
  }

  /** `close` is called when the holder's token is over. Call what comes back when the thing closed by itself. */
  holdOpen({ id }: Holder, close: () => void): () => void {
    if (id === undefined) return () => undefined
    const open = this.#open.get(id) ?? new Set()
    this.#open.set(id, open.add(close))
    return () => void open.delete(close)
  }

  #isOver(id: string): boolean {
    const { expiresAt = null } = this.#tokens.get(id)?.view ?? {}
    return expiresAt !== null && this.#parts.clock.wallTime() >= expiresAt
  }

  #end(id: string): void {
    const open = this.#open.get(id) ?? []
    this.#open.delete(id)
    for (const close of open) close()
  }

  /** Of no great worth: a disk that fails costs the note alone. */
  #note(token: KeptToken): void {
    const at = this.#parts.clock.wallTime()
    if (at - (token.view.lastUsedAt ?? Number.NEGATIVE_INFINITY) < NOTE_MS) return
    void this.#keep({ ...token, view: { ...token.view, lastUsedAt: at } }).catch(() => undefined)
  }

  async #keep(token: KeptToken): Promise<void> {
    const { id } = token.view
    const before = this.#tokens.get(id)
    this.#tokens.set(id, token)
    this.#writing.add(id)
    try {
      await this.#parts.store.put(PREFIX + id, JSON.stringify(token))
    } catch (error) {
      if (before === undefined) this.#tokens.delete(id)
      throw error
    } finally {
      this.#writing.delete(id)
    }
    if (!this.#tokens.has(id)) await this.#parts.store.remove(PREFIX + id) // revoked meanwhile
  }
}
