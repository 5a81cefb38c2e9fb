// The archives of the npm package @sparticuz/chromium: a software Vulkan driver with its loader, and a headless
// Chromium with libraries and fonts. They are unpacked here, never through the package's own code, which is
// made for AWS Lambda and writes to fixed names in the temporary folder.
import { createReadStream, createWriteStream, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { createBrotliDecompress } from 'node:zlib'
import { extract, type Headers } from 'tar-fs'

const EXECUTABLE_MODE = 0o755

/** The package's programs are for this platform only. */
export const bundleRunsHere = process.platform === 'linux' && process.arch === 'x64'

/** Names cache folders: a new release of the package unpacks beside the old one. */
export function bundleVersion(): string {
  const manifest: unknown = JSON.parse(readFileSync(join(packageFolder(), 'package.json'), 'utf8'))
  if (typeof manifest === 'object' && manifest !== null && 'version' in manifest) return String(manifest.version)
  throw new Error('internal: @sparticuz/chromium has no version')
}

/** Unpacks `<archive>.tar.br` into a folder, all of it or only the files named. */
export async function unpackArchive(archive: string, into: string, only?: readonly string[]): Promise<void> {
  const unwanted = (path: string) => only !== undefined && !only.some((name) => path.endsWith(`/${name}`))
  await pipeline(
    createReadStream(archivePath(`${archive}.tar.br`)),
    createBrotliDecompress(),
    extract(into, { ignore: unwanted, map: ownedByMe }),
  )
}

/** Decompresses `<program>.br` into an executable file. */
export async function inflateProgram(program: string, into: string): Promise<void> {
  await pipeline(
    createReadStream(archivePath(`${program}.br`)),
    createBrotliDecompress(),
    createWriteStream(into, { mode: EXECUTABLE_MODE }),
  )
}

/** Root would otherwise give the files to the user id that packed them. */
function ownedByMe(header: Headers): Headers {
  return { ...header, uid: process.getuid?.() ?? header.uid, gid: process.getgid?.() ?? header.gid }
}

function archivePath(file: string): string {
  return join(packageFolder(), 'bin', file)
}

function packageFolder(): string {
  // The package exports only its entry point, which lies two folders down (build/cjs/index.cjs).
  const entry = createRequire(import.meta.url).resolve('@sparticuz/chromium')
  return dirname(dirname(dirname(entry)))
}
