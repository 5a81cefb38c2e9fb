// docs/openapi.json and the table of docs/HTTP.md: made from the table of routes. `npm run docs` writes both;
// api-page.test.ts fails while they differ.
import { readFileSync, writeFileSync } from 'node:fs'
import { CALLERS, HTTP_API, type ApiRoute, type WireRoute, WIRE_ROUTES } from '../src/http-api.ts'
import { openApiDocument } from '../src/openapi.ts'

const DOCUMENT = new URL('../../docs/openapi.json', import.meta.url)
const PAGE = new URL('../../docs/HTTP.md', import.meta.url)
const [BEGIN, END] = ['<!-- generated: routes -->\n', '\n<!-- end -->']

export const documentFile = (): string => `${JSON.stringify(openApiDocument(), null, 2)}\n`
export const documentOnDisk = (): string => readFileSync(DOCUMENT, 'utf8')
export const httpPage = (): string => readFileSync(PAGE, 'utf8')

/** `GET /api/v1/jobs/ID/records?from=&limit=` */
function addressOf(route: ApiRoute | WireRoute): string {
  const path = route.path.replaceAll(/:(\w+)/g, (_, name: string) => name.toUpperCase())
  const query = Object.keys(('query' in route ? route.query?.properties : undefined) ?? {})
  return `${route.method} ${path}${query.length === 0 ? '' : `[?${query.join('&')}]`}`
}

function answersOf(route: ApiRoute | WireRoute): string {
  if (!('status' in route)) return ''
  const known = route.tagged === true ? [304] : []
  return [route.status, ...known, ...Object.keys(route.also ?? {}), ...Object.keys(route.refusals)].sort().join(', ')
}

export function routeTable(): string {
  const rows = [...Object.values(HTTP_API), ...WIRE_ROUTES].map((route) => {
    const cells = [`\`${addressOf(route)}\``, CALLERS[route.caller], route.about, answersOf(route)]
    return `| ${cells.map((cell) => cell.replaceAll('|', String.raw`\|`)).join(' | ')} |`
  })
  return ['| route | who | what | answers |', '|---|---|---|---|', ...rows].join('\n')
}

/** The page with its table as the source has it now. */
export function renewedHttp(page: string): string {
  const [from, to] = [page.indexOf(BEGIN), page.indexOf(END)]
  if (from < 0 || to < from) throw new Error(`expected "${BEGIN.trim()}" and its end in docs/HTTP.md, got neither`)
  return page.slice(0, from + BEGIN.length) + routeTable() + page.slice(to)
}

export function writeApiDocs(): void {
  writeFileSync(DOCUMENT, documentFile())
  writeFileSync(PAGE, renewedHttp(httpPage()))
}
