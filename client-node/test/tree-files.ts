// The repository's files, for tests that hold a rule over all of them.
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/** Folders of the packages. */
export const PACKAGES: readonly string[] = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')).workspaces

/** Paths from the root, without what is installed, built or hidden. */
export function filesUnder(folder: string): string[] {
  return readdirSync(join(ROOT, folder), { withFileTypes: true }).flatMap((entry) => {
    const path = `${folder}/${entry.name}`
    if (!entry.isDirectory()) return [path]
    return entry.name === 'node_modules' || entry.name === 'dist' || entry.name.startsWith('.') ? [] : filesUnder(path)
  })
}
