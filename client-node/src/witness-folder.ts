// What an audit needs of a run, in a folder that all volunteers of a machine share. Sums are named by their SHA-256,
// states by their version's id. The names are in the committed records, so that the writer of a sum cannot make it
// another.
import { existsSync, mkdirSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { JobId, Sha256, VersionId } from '@starling-grid/protocol'
import { bytesOf, type VolunteerHost } from '@starling-grid/volunteer'

export interface WitnessPaths {
  readonly terms: string
  sum(digest: Sha256): string
  state(id: VersionId): string
}

export function witnessPaths(root: string, job: JobId): WitnessPaths {
  const folder = join(root, job)
  return {
    terms: join(folder, 'terms.json'),
    sum: (digest) => join(folder, `${digest}.sum`),
    state: (id) => join(folder, `${id}.state`),
  }
}

/** `root`: STARLING_WITNESS; absent: nothing is kept. */
export function witnessIn(root: string | undefined): Pick<VolunteerHost, 'witness'> {
  if (!root) return {}
  return {
    witness: (terms) => {
      const paths = witnessPaths(root, terms.id)
      mkdirSync(join(root, terms.id), { recursive: true })
      write(paths.terms, new TextEncoder().encode(JSON.stringify(terms)))
      return {
        applied: ({ gradDigest }, sum) => write(paths.sum(gradDigest), bytesOf(sum)),
        adopted: ({ id }, state) => write(paths.state(id), state()),
      }
    },
  }
}

/**
 * Before the next step begins: a process that is killed then has left all that it applied. Half a file never counts.
 */
function write(path: string, bytes: Uint8Array): void {
  if (existsSync(path)) return
  const partial = `${path}.${process.pid}`
  writeFileSync(partial, bytes)
  renameSync(partial, path)
}
