// Makes this very process see the Vulkan drivers that adapterEnvironment chose. A second process with the right
// environment would do too, but signals and exit codes would then cross one process more. Call it on the main thread: a
// worker's process.env is a copy that drivers do not see.
import { constants } from 'node:os'
import { type AdapterEnvironment, adapterEnvironment, type AdapterWish } from './adapter-environment.ts'

/** Linux, dlfcn.h: keeps a library loaded when it is closed. */
const RTLD_NODELETE = 0x1000

/** @returns what was chosen or, where nothing was found, what was tried */
export async function prepareProcess(wish: AdapterWish = {}): Promise<string> {
  const chosen = await adapterEnvironment(wish)
  applyEnvironment(chosen)
  return chosen.description
}

/** As if this process had been started in it. */
export function applyEnvironment({ env, loader }: Pick<AdapterEnvironment, 'env' | 'loader'>): void {
  Object.assign(process.env, env)
  if (loader !== undefined) keepLoaded(loader)
}

/**
 * LD_LIBRARY_PATH is read when a process starts; afterwards a library is found by its name if it is loaded already.
 * Node loads this one, finds that it is no Node module, throws and closes it; the flag keeps it.
 */
function keepLoaded(library: string): void {
  try {
    process.dlopen({ exports: {} }, library, constants.dlopen.RTLD_NOW | constants.dlopen.RTLD_GLOBAL | RTLD_NODELETE)
  } catch {
    // Expected. If the library itself could not be loaded, Dawn reports it when it loads the library.
  }
}
