// Finds a Chromium to run pages in. The order is STARLING_CHROMIUM, an installed one, Playwright's own, and the bundled
// one, which is unpacked on first use.
import { writeFile } from 'node:fs/promises'
import { delimiter, join } from 'node:path'
import { GridError } from '@starling-grid/protocol'
import { bundleRunsHere, bundleVersion, inflateProgram, unpackArchive } from './bundle.ts'
import { exists, filledOnce } from './cache-folder.ts'

export interface FoundChromium {
  readonly executable: string
  /** where it comes from, for a person: "bundled", "installed", … */
  readonly origin: string
  /** the whole environment to start it with */
  readonly env: NodeJS.ProcessEnv
}

const PROGRAMS = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable']
const CURE = 'run `npx playwright install chromium`, or name a Chromium or Chrome in STARLING_CHROMIUM'

/** @throws GridError('browser-missing') with the command that gets one */
export async function findChromium(env: NodeJS.ProcessEnv = process.env): Promise<FoundChromium> {
  const named = env['STARLING_CHROMIUM']
  if (named) return chromiumNamed(named, env)
  const installed = await installedChromium(env)
  if (installed) return { executable: installed, origin: 'installed', env }
  const playwrights = await playwrightsChromium()
  if (playwrights) return { executable: playwrights, origin: "Playwright's", env }
  if (bundleRunsHere) return bundledChromium(env)
  throw new GridError(
    'browser-missing',
    `expected Chromium on this ${process.platform} ${process.arch}, got none; ${CURE}`,
  )
}

async function chromiumNamed(executable: string, env: NodeJS.ProcessEnv): Promise<FoundChromium> {
  if (await exists(executable)) return { executable, origin: 'STARLING_CHROMIUM', env }
  throw new GridError(
    'browser-missing',
    `expected Chromium at ${executable} of STARLING_CHROMIUM, got no file; ${CURE}`,
  )
}

async function installedChromium(env: NodeJS.ProcessEnv): Promise<string | undefined> {
  for (const candidate of [...onPath(env), ...inUsualPlaces(env)]) if (await exists(candidate)) return candidate
  return undefined
}

function onPath(env: NodeJS.ProcessEnv): string[] {
  const folders = (env['PATH'] ?? '').split(delimiter).filter((folder) => folder !== '')
  return PROGRAMS.flatMap((program) => folders.map((folder) => join(folder, program)))
}

function inUsualPlaces(env: NodeJS.ProcessEnv): string[] {
  if (process.platform === 'darwin')
    return ['Google Chrome', 'Chromium'].map((name) => `/Applications/${name}.app/Contents/MacOS/${name}`)
  if (process.platform !== 'win32') return []
  return ['PROGRAMFILES', 'PROGRAMFILES(X86)', 'LOCALAPPDATA'].flatMap((root) => {
    const folder = env[root]
    return folder ? [join(folder, 'Google', 'Chrome', 'Application', 'chrome.exe')] : []
  })
}

async function playwrightsChromium(): Promise<string | undefined> {
  // Imported late: it takes longer to load than everything else here.
  const { chromium } = await import('playwright-core')
  const path = chromium.executablePath()
  return (await exists(path)) ? path : undefined
}

/** Unpacks 190 MB on first use (about 3 s). */
async function bundledChromium(env: NodeJS.ProcessEnv): Promise<FoundChromium> {
  const folder = await filledOnce(`chromium-${bundleVersion()}`, unpackChromium)
  const libraries = [folder, join(folder, 'lib'), env['LD_LIBRARY_PATH']].filter((path) => path !== undefined)
  return {
    executable: join(folder, 'chromium'),
    origin: 'bundled',
    env: { ...env, LD_LIBRARY_PATH: libraries.join(delimiter), FONTCONFIG_FILE: join(folder, 'fonts.conf') },
  }
}

async function unpackChromium(into: string, final: string): Promise<void> {
  await Promise.all([
    inflateProgram('chromium', join(into, 'chromium')),
    unpackArchive('swiftshader', into),
    unpackArchive('al2023', into),
    unpackArchive('fonts', into),
  ])
  await writeFile(join(into, 'fonts.conf'), fontConfiguration(final))
}

/** The archive's own configuration names folders of AWS Lambda. The system's fonts, where there are any, come first. */
function fontConfiguration(final: string): string {
  const folder = final.replaceAll('&', '&amp;').replaceAll('<', '&lt;')
  return `<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <include ignore_missing="yes">/etc/fonts/fonts.conf</include>
  <dir>${folder}/fonts</dir>
  <cachedir>${folder}/font-cache</cachedir>
</fontconfig>
`
}
