// A page of ours in a headless browser: built, served on this machine only, and called like a library. The page
// isolates itself from other origins, because WebAssembly threads need that.
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { extname, join, normalize } from 'node:path'
import { launchBrowser } from '@starling-grid/client-node'
import { bundle } from './bundle.ts'

const INDEX =
  '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><script type="module" src="/page.js"></script>'
const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.wgsl': 'text/plain',
  '.wasm': 'application/wasm',
}
const HEADERS = {
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-embedder-policy': 'require-corp',
  'cache-control': 'no-store',
}

export interface OpenPage {
  /**
   * Calls a function that the page has put into `globalThis.page`, from JSON to JSON. What it throws is thrown here,
   * with its message.
   */
  call(name: string, argument?: unknown): Promise<unknown>
  close(): Promise<void>
}

export interface OpenPages {
  readonly pages: readonly Pick<OpenPage, 'call'>[]
  close(): Promise<void>
}

export interface PageOptions {
  /** modules to build, by the name under which the page can import them: `/name.js`. `page` is run when it opens */
  readonly modules: Readonly<Record<string, URL>> & { readonly page: URL }
  /** files to serve beside the page, by the last part of their address */
  readonly files?: Readonly<Record<string, string>>
  /** false: without an adapter (default true) */
  readonly gpu?: boolean
}

/** @throws GridError('browser-missing') with the command that gets one */
export async function openPage(options: PageOptions): Promise<OpenPage> {
  const {
    pages: [page],
    close,
  } = await openPages(options, 1)
  if (page === undefined) throw new Error('internal: one page was asked for')
  return { ...page, close }
}

/**
 * Several tabs of the same page in one browser, each in a context of its own. A hidden tab of a shared one would have
 * slow timers.
 */
export async function openPages({ modules, files = {}, gpu = true }: PageOptions, count: number): Promise<OpenPages> {
  const folder = await mkdtemp(join(tmpdir(), 'starling-page-'))
  const undo: (() => Promise<unknown>)[] = [() => rm(folder, { recursive: true, force: true })]
  const close = async () => {
    for (const step of undo.splice(0).reverse()) await step()
  }
  try {
    await bundle(modules, folder)
    await writeFile(join(folder, 'index.html'), INDEX)
    const server = await serve(folder, files)
    undo.push(() => closed(server))
    const browser = await launchBrowser({ gpu })
    undo.push(() => browser.close())
    const { port } = server.address() as AddressInfo
    return {
      close,
      pages: await Promise.all(
        Array.from({ length: count }, () => openTab(browser, `http://localhost:${port}/index.html`)),
      ),
    }
  } catch (error) {
    await close()
    throw error
  }
}

async function openTab(
  browser: Awaited<ReturnType<typeof launchBrowser>>,
  url: string,
): Promise<Pick<OpenPage, 'call'>> {
  const page = await (await browser.newContext()).newPage()
  const refused = new Promise<never>((_, reject) => page.once('pageerror', reject))
  await page.goto(url)
  await Promise.race([page.waitForFunction(() => 'page' in globalThis), refused])
  refused.catch(() => undefined)
  return { call: (name, argument = null) => page.evaluate(callInPage, { name, argument }).catch(asThrown) }
}

/** The page's own words, without those that the driver puts before them. */
function asThrown(error: unknown): never {
  const said = error instanceof Error ? error.message : String(error)
  throw new Error(said.replace(/^page\.evaluate: (Error: )?/, ''), { cause: error })
}

/** Runs in the page. */
async function callInPage({ name, argument }: { readonly name: string; readonly argument: unknown }): Promise<unknown> {
  const offered = Reflect.get(globalThis, 'page') as Readonly<Record<string, (argument: unknown) => unknown>>
  const wanted = offered[name]
  if (!wanted)
    throw new Error(`expected a function of the page, one of ${Object.keys(offered).join(', ')}, got ${name}`)
  return wanted(argument)
}

async function serve(folder: string, files: Readonly<Record<string, string>>): Promise<Server> {
  const server = createServer((request, response) => {
    const path = normalize(new URL(request.url ?? '/', 'http://localhost').pathname)
    const file = files[path.split('/').at(-1) ?? ''] ?? join(folder, path)
    readFile(file).then(
      (body) =>
        response
          .writeHead(200, { ...HEADERS, 'content-type': TYPES[extname(file)] ?? 'application/octet-stream' })
          .end(body),
      () => response.writeHead(404).end(),
    )
  })
  await new Promise<void>((resolve, reject) => server.once('error', reject).listen(0, '127.0.0.1', resolve))
  return server
}

function closed(server: Server): Promise<void> {
  server.closeAllConnections()
  return new Promise((resolve) => void server.close(() => resolve()))
}
