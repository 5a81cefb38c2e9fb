// One coordinator at a time uses a data folder. A lock of the operating system ends with its process, and tells whether
// an owner on this machine lives. A card beside it names the owner, and carries its heartbeat for other machines. Only
// the fence in the journal protects the jobs; this tells people of a second start, and a displaced owner that it is
// one.
import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { type CancelTimer, describeError, GridError, isGridError, systemClock } from '@starling-grid/protocol'
import Database from 'libsql'
import { requireOwn } from './own-modes.ts'

/** ms between looks at the card: a displaced owner ends within one */
const BEAT_MS = 1000
/**
 * ms that the card of another machine is watched before its owner counts as dead: several beats, since clocks differ
 */
const WATCH_MS = 3500
/** ms for a displaced owner on this machine to end: it answers what waits and closes its connections first */
const STEP_DOWN_MS = 10_000
const POLL_MS = 100
/** ms for a killed process to be gone */
const LOCK_MS = 500

/** What people and other coordinators read of the owner. */
interface Card {
  readonly id: string
  /** of the running kernel: equal in all containers of one machine */
  readonly machine: string
  readonly host: string
  readonly pid: number
  /** ISO 8601 */
  readonly startedAt: string
  readonly url?: string
  readonly beat: number
}

export interface ClaimOptions {
  /** displace an owner that lives */
  readonly takeOver: boolean
  /** another coordinator took the folder; this one is to end */
  readonly onDisplaced: (error: GridError) => void
}

export class FolderOwner {
  readonly #file: string
  readonly #lock: Lock
  readonly #onDisplaced: (error: GridError) => void
  /** its late beat may put its card back: it saw the card before it was displaced */
  readonly #ownerBefore: string | undefined
  #card: Card
  #stopBeating: CancelTimer = () => undefined
  #beating: Promise<void> = Promise.resolve()
  #writing: Promise<void> = Promise.resolve()

  /** @throws GridError 'folder-in-use' when another coordinator lives, 'folder-unwritable' */
  static async claim(folder: string, options: ClaimOptions): Promise<FolderOwner> {
    try {
      return await FolderOwner.#claim(folder, options)
    } catch (cause) {
      if (isGridError(cause)) throw cause
      throw new GridError(
        'folder-unwritable',
        `expected a data folder that can be written, got ${folder} (${describeError(cause)}); ` +
          'name another with --data-dir',
        { cause },
      )
    }
  }

  static async #claim(folder: string, { takeOver, onDisplaced }: ClaimOptions): Promise<FolderOwner> {
    await mkdir(folder, { recursive: true, mode: 0o700 })
    await requireOwn(folder)
    const lock = openLock(join(folder, 'coordinator.lock'))
    const file = join(folder, 'coordinator.json')
    const before = await readCard(file)
    const lives = !lock.take(LOCK_MS) || (await beats(file, before))
    if (lives && !takeOver) {
      lock.release()
      throw inUse(folder, before)
    }
    const owner = new FolderOwner({ file, lock, onDisplaced, ownerBefore: before?.id })
    await owner.#write()
    for (let waited = 0; !lock.take(0) && waited < STEP_DOWN_MS; waited += POLL_MS) {
      await systemClock.sleep(POLL_MS)
      if (owner.#isLate(await readCard(file))) await owner.#write()
    }
    owner.#stopBeating = systemClock.every(BEAT_MS, () => owner.#beat())
    return owner
  }

  private constructor({
    file,
    lock,
    onDisplaced,
    ownerBefore,
  }: {
    readonly file: string
    readonly lock: Lock
    readonly onDisplaced: (error: GridError) => void
    readonly ownerBefore: string | undefined
  }) {
    this.#file = file
    this.#lock = lock
    this.#onDisplaced = onDisplaced
    this.#ownerBefore = ownerBefore
    this.#card = {
      id: randomUUID(),
      machine: machineId(),
      host: hostname(),
      pid: process.pid,
      startedAt: new Date(systemClock.wallTime()).toISOString(),
      beat: 0,
    }
  }

  /** Where people find this coordinator. */
  async listensAt(url: string): Promise<void> {
    this.#card = { ...this.#card, url }
    await this.#write()
  }

  /** The next start goes on at once. */
  async release(): Promise<void> {
    this.#stopBeating()
    await this.#beating
    if ((await readCard(this.#file))?.id === this.#card.id) await rm(this.#file, { force: true })
    this.#lock.release()
  }

  #beat(): void {
    this.#beating = this.#lookAndWrite().catch(() => undefined) // a full disk: the journal says so, louder
  }

  async #lookAndWrite(): Promise<void> {
    const found = await readCard(this.#file)
    if (found !== undefined && found.id !== this.#card.id && !this.#isLate(found)) {
      this.#stopBeating()
      return this.#onDisplaced(
        new GridError(
          'folder-in-use',
          `expected this coordinator to own the data folder, got ${nameOf(found)}, which took over; this one ends`,
        ),
      )
    }
    this.#lock.take(0) // after a take-over: as soon as the owner before has ended
    this.#card = { ...this.#card, beat: this.#card.beat + 1 }
    await this.#write()
  }

  #isLate(found: Card | undefined): boolean {
    return found !== undefined && found.id === this.#ownerBefore
  }

  /** Whole or not at all, and one after the other: a beat may be due while the first is slow to be written. */
  #write(): Promise<void> {
    const written = this.#writing.then(() => this.#writeAside())
    this.#writing = written.catch(() => undefined)
    return written
  }

  async #writeAside(): Promise<void> {
    const aside = `${this.#file}.${this.#card.id}`
    await writeFile(aside, `${JSON.stringify(this.#card)}\n`, { mode: 0o600 })
    await rename(aside, this.#file)
  }
}

interface Lock {
  /** Whether this process has it now. Blocks for up to `waitMs`. */
  take(waitMs: number): boolean
  release(): void
}

/**
 * SQLite's lock of a file of its own: POSIX record locks or their like, which the kernel takes back from a dead
 * process.
 */
function openLock(file: string): Lock {
  const database = new Database(file)
  let taken = false
  return {
    take(waitMs) {
      if (taken) return true
      database.prepare(`PRAGMA busy_timeout = ${waitMs}`).all()
      try {
        database.exec('BEGIN EXCLUSIVE')
        taken = true
      } catch (error) {
        if (!(error instanceof Database.SqliteError) || error.code !== 'SQLITE_BUSY') throw error
      }
      return taken
    },
    release() {
      if (taken) database.exec('ROLLBACK')
      taken = false
      database.close()
    },
  }
}

/** A card of this machine is of a dead process when its lock is free; one of another machine when it does not beat. */
async function beats(file: string, card: Card | undefined): Promise<boolean> {
  if (card === undefined || card.machine === machineId()) return false
  await systemClock.sleep(WATCH_MS)
  const later = await readCard(file)
  return later !== undefined && (later.id !== card.id || later.beat !== card.beat)
}

async function readCard(file: string): Promise<Card | undefined> {
  try {
    const card = JSON.parse(await readFile(file, 'utf8')) as Card
    return typeof card.id === 'string' ? card : undefined
  } catch {
    return undefined // none, or not ours: the lock and the fence decide
  }
}

function inUse(folder: string, owner: Card | undefined): GridError {
  const who = owner === undefined ? 'another coordinator' : nameOf(owner)
  return new GridError(
    'folder-in-use',
    `expected a data folder without a coordinator, got ${folder}, which belongs to ${who}; stop that one, ` +
      'name another folder with --data-dir, or displace it with --take-over',
  )
}

function nameOf({ pid, host, startedAt, url }: Card): string {
  return `process ${pid} on ${host}, started ${startedAt}${url === undefined ? '' : `, at ${url}`}`
}

/** Of the running kernel: equal for all processes and containers of one machine. */
export function machineId(): string {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()
  } catch {
    return hostname()
  }
}
