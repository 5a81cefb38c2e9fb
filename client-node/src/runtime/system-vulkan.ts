// What this machine's Vulkan installation looks like from the outside, without loading any of it.
import { readdirSync } from 'node:fs'
import { homedir } from 'node:os'
import { delimiter, join } from 'node:path'

/** The variable by which the user chose drivers themselves, if any; the Vulkan loader then looks at nothing else. */
export function driversNamedByUser(env: NodeJS.ProcessEnv): string | undefined {
  return ['VK_DRIVER_FILES', 'VK_ICD_FILENAMES'].find((name) => env[name])
}

/**
 * Manifests of installed drivers, in the folders where the Vulkan loader looks (its LoaderInterfaceArchitecture page).
 */
export function installedDrivers(env: NodeJS.ProcessEnv = process.env): string[] {
  return driverFolders(env).flatMap((folder) => manifestsIn(folder).map((file) => join(folder, file)))
}

function driverFolders(env: NodeJS.ProcessEnv): string[] {
  const roots = [
    env['XDG_CONFIG_HOME'] || join(homedir(), '.config'),
    ...split(env['XDG_CONFIG_DIRS'] || '/etc/xdg'),
    '/usr/local/etc',
    '/etc',
    env['XDG_DATA_HOME'] || join(homedir(), '.local/share'),
    ...split(env['XDG_DATA_DIRS'] || '/usr/local/share:/usr/share'),
  ]
  return roots.map((root) => join(root, 'vulkan/icd.d'))
}

function manifestsIn(folder: string): string[] {
  try {
    return readdirSync(folder).filter((file) => file.endsWith('.json'))
  } catch {
    return []
  }
}

function split(paths: string): string[] {
  return paths.split(delimiter).filter((path) => path !== '')
}
