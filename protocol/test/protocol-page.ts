// The tables of docs/PROTOCOL.md, made from the schemas and constants of this package and from their comments.
// `npm run docs` writes them; protocol-page.test.ts fails while the page differs.
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import * as frames from '../src/frame.ts'
import * as limits from '../src/limits.ts'
import { TO_COORDINATOR, TO_VOLUNTEER } from '../src/messages.ts'
import { JobIdSchema } from '../src/schema.ts'
import { writeApiDocs } from './api-page.ts'
import { writeJobDocs } from './job-page.ts'

const PAGE = new URL('../../docs/PROTOCOL.md', import.meta.url)

type Schema = { readonly properties?: Readonly<Record<string, unknown>>; readonly required?: readonly string[] }

const sourceOf = (file: string): string => readFileSync(new URL(`../src/${file}`, import.meta.url), 'utf8')

/** Names of declarations that match `declared` → the text of the comment directly above each. */
function commentsOf(source: string, declared: string): Map<string, string> {
  const above = new RegExp(String.raw`/\*\*((?:(?!\*/)[^])*)\*/\n *${declared}`, 'g')
  return new Map(
    [...source.matchAll(above)].map(([, comment = '', name = '']) => [
      name,
      comment
        .replaceAll(/\n\s*\*?/g, ' ')
        .replaceAll(/\s+/g, ' ')
        .trim(),
    ]),
  )
}

/** @throws Error naming the declaration that has no comment */
function commentOf(comments: ReadonlyMap<string, string>, name: string): string {
  const comment = comments.get(name)
  if (comment === undefined) throw new Error(`expected a comment above ${name}, got none; add one`)
  return comment.replaceAll('|', String.raw`\|`)
}

/** The id of a job, which most messages carry; `welcome` and `job` describe a whole job in a field of that name. */
const isOfJob = ({ job }: Readonly<Record<string, unknown>>): boolean => job === JobIdSchema

function fieldsOf({ properties = {}, required = [] }: Schema): string {
  const isBallot = 'fence' in properties && 'generation' in properties
  // fields that the page explains once
  const common = new Set([
    'type',
    ...(isBallot ? ['fence', 'generation'] : []),
    ...(isOfJob(properties) ? ['job'] : []),
  ])
  const fields = Object.keys(properties)
    .filter((name) => !common.has(name))
    .map((name) => (required.includes(name) ? name : `${name}?`))
  return (isBallot ? ['*ballot*', ...fields] : fields).join(', ')
}

function messageTable(schemas: Readonly<Record<string, unknown>>): string {
  const comments = commentsOf(sourceOf('messages.ts'), String.raw`'?([a-z-]+)'?: strict\(`)
  const rows = Object.entries(schemas).map(
    ([type, schema]) => `| \`${type}\` | ${fieldsOf(schema as Schema)} | ${commentOf(comments, type)} |`,
  )
  return ['| message | fields | meaning |', '|---|---|---|', ...rows].join('\n')
}

function frameTable(): string {
  const comments = commentsOf(sourceOf('frame.ts'), '([a-z]+): [0-9]+,')
  const rows = Object.entries(frames.FRAME_TYPES).map(
    ([type, code]) => `| ${code} | \`${type}\` | ${commentOf(comments, type)} |`,
  )
  return ['| type | name | payload |', '|---|---|---|', ...rows].join('\n')
}

function constantTable(): string {
  const comments = commentsOf(sourceOf('limits.ts'), 'export const ([A-Z_]+) =')
  const rows = Object.entries(limits).map(
    ([name, value]) => `| \`${name}\` | ${value.toLocaleString('en-US')} | ${commentOf(comments, name)} |`,
  )
  return ['| constant | value | meaning |', '|---|---|---|', ...rows].join('\n')
}

const TABLES: Readonly<Record<string, () => string>> = {
  'to the coordinator': () => messageTable(TO_COORDINATOR),
  'to a volunteer': () => messageTable(TO_VOLUNTEER),
  frames: frameTable,
  constants: constantTable,
}

/** The page as it is on disk. */
export const protocolPage = (): string => readFileSync(PAGE, 'utf8')

/** The page with each generated table as the source has it now. */
export function renewed(page: string): string {
  return Object.entries(TABLES).reduce((text, [name, table]) => {
    const [begin, end] = [`<!-- generated: ${name} -->\n`, '\n<!-- end -->']
    const from = text.indexOf(begin)
    const to = text.indexOf(end, from)
    if (from < 0 || to < 0) throw new Error(`expected "${begin.trim()}" and its end in docs/PROTOCOL.md, got neither`)
    return text.slice(0, from + begin.length) + table() + text.slice(to)
  }, page)
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeFileSync(PAGE, renewed(protocolPage()))
  writeJobDocs()
  writeApiDocs()
}
