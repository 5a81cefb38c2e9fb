// The software GPU that comes with `npm install`: SwiftShader and a Vulkan loader, Linux x64.
import { join } from 'node:path'
import { GridError } from '@starling-grid/protocol'
import { bundleRunsHere, bundleVersion, unpackArchive } from './bundle.ts'
import { filledOnce } from './cache-folder.ts'

const MANIFEST = 'vk_swiftshader_icd.json'
// Not the archive's libEGL and libGLESv2: a folder in LD_LIBRARY_PATH must not shadow the system's OpenGL.
const FILES = ['libvk_swiftshader.so', 'libvulkan.so.1', MANIFEST]

export interface SoftwareAdapter {
  /** driver manifest, for VK_ICD_FILENAMES */
  readonly icd: string
  /** folder of the driver and of libvulkan.so.1, for LD_LIBRARY_PATH, which must be set before the process starts */
  readonly libraryPath: string
}

/** Unpacks the software adapter on first use (about 0.3 s). */
export async function softwareAdapter(): Promise<SoftwareAdapter> {
  if (!bundleRunsHere)
    throw new GridError(
      'no-adapter',
      `expected Linux x64 for the bundled software adapter, got ${process.platform} ${process.arch}; ` +
        'install a Vulkan driver',
    )
  const folder = await filledOnce(`swiftshader-${bundleVersion()}`, (into) => unpackArchive('swiftshader', into, FILES))
  return { icd: join(folder, MANIFEST), libraryPath: folder }
}
