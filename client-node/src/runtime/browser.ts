// A headless browser with a WebGPU adapter on any machine: for whole-grid tests, golden vectors and benchmarks.
import type { Browser } from 'playwright-core'
import { findChromium } from './chromium.ts'

const ALWAYS = [
  '--no-sandbox', // containers and root have no sandbox to offer
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  // A tab's candidates would otherwise have mDNS names, which Node on the same machine cannot resolve.
  '--disable-features=WebRtcHideLocalIpsWithMdns',
]
const SOFTWARE_GPU = ['--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader']

export interface LaunchOptions {
  /** false: a browser whose pages find no adapter (default true) */
  readonly gpu?: boolean
}

/** @throws GridError('browser-missing') with the command that gets one */
export async function launchBrowser({ gpu = true }: LaunchOptions = {}): Promise<Browser> {
  const { executable, env } = await findChromium()
  // Imported late: it takes longer to load than everything else here.
  const { chromium } = await import('playwright-core')
  return chromium.launch({
    executablePath: executable,
    args: gpu ? [...ALWAYS, ...SOFTWARE_GPU] : ALWAYS,
    env: defined(env),
  })
}

/** Playwright takes no undefined values. */
function defined(env: NodeJS.ProcessEnv): Record<string, string> {
  return Object.fromEntries(Object.entries(env).filter((entry): entry is [string, string] => entry[1] !== undefined))
}
