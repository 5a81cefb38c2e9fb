// The name under which a coordinator has its jobs. It stays with the data folder: a coordinator that starts again has
// them at once, without waiting for its lease to end.
import { randomUUID } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type CoordinatorId, coordinatorId } from '../journal/owner-book.ts'
import { keepSecret } from '../own-modes.ts'

const FILE = 'coordinator-id'
const ID = /^[0-9a-f-]{36}$/

/** Made at the first start. @throws GridError 'folder-unwritable' */
export async function ownCoordinatorId(dataDir: string): Promise<CoordinatorId> {
  const kept = await readFile(join(dataDir, FILE), 'utf8').then(
    (text) => text.trim(),
    () => '',
  )
  if (ID.test(kept)) return coordinatorId(kept)
  const made = randomUUID()
  await keepSecret(dataDir, join(dataDir, FILE), `${made}\n`)
  return coordinatorId(made)
}
