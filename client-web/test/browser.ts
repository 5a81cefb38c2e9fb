import { launchBrowser } from '@starling-grid/client-node'
// Pages in a real browser that write down everything they complain about.
import type { Browser, BrowserContextOptions, Page } from 'playwright-core'
import { ensureWebPage } from '../build.ts'

export interface WatchedPage {
  readonly page: Page
  /** console errors, uncaught errors, refusals by the CSP */
  readonly complaints: string[]
}

export { launchBrowser }

export function builtPages(): Promise<string> {
  return ensureWebPage(() => undefined)
}

export async function openPage(browser: Browser, options: BrowserContextOptions = {}): Promise<WatchedPage> {
  const page = await browser.newPage({ viewport: { width: 1440, height: 900 }, ...options })
  const complaints: string[] = []
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') complaints.push(message.text())
  })
  page.on('pageerror', (error) => complaints.push(error.message))
  return { page, complaints }
}

/** Pixels that the page is wider than its window. */
export function overflow(page: Page): Promise<number> {
  return page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
}
