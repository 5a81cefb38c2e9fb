// docs/job.schema.json, which editors read, and the table of docs/JOBS.md: made from the schema of a job and from
// job-fields.ts. `npm run docs` writes both; job-page.test.ts fails while they differ.
import { readFileSync, writeFileSync } from 'node:fs'
import { LAYER_DEFINITION, layerSchema, modelSchema } from '@starling-grid/model'
import { JobSpecSchema } from '../src/job.ts'
import { described } from '../src/mistakes.ts'
import { type FieldRow, JOB_FIELDS } from './job-fields.ts'

const SCHEMA_FILE = new URL('../../docs/job.schema.json', import.meta.url)
const PAGE = new URL('../../docs/JOBS.md', import.meta.url)

export interface JobSchema {
  readonly properties?: Readonly<Record<string, JobSchema>>
  readonly required?: readonly string[]
  readonly anyOf?: readonly JobSchema[]
  readonly const?: unknown
  readonly type?: string
}

export interface SchemaField {
  readonly path: string
  readonly schema: JobSchema
  readonly isRequired: boolean
}

/** Every field, those of objects after the object itself. */
export function jobFields(schema: JobSchema = JobSpecSchema as object, prefix = ''): SchemaField[] {
  return Object.entries(schema.properties ?? {}).flatMap(([name, inner]) => {
    const path = `${prefix}${name}`
    const objects = (inner.anyOf ?? [inner]).filter(({ properties }) => properties !== undefined)
    return [
      { path, schema: inner, isRequired: schema.required?.includes(name) ?? false },
      ...objects.flatMap((object) => jobFields(object, `${path}${objects.length > 1 ? tagOf(object) : ''}.`)),
    ]
  })
}

/** `[adam, adamw]` of an optimizer */
function tagOf({ properties = {} }: JobSchema): string {
  const tag = properties['type'] ?? properties['source'] ?? {}
  return `[${(tag.anyOf ?? [tag]).map(({ const: word }) => String(word)).join(', ')}]`
}

/** @throws Error naming the field that has no row */
function rowOf(path: string): FieldRow {
  const row = JOB_FIELDS[path]
  if (row === undefined)
    throw new Error(`expected a row for the field ${path} in protocol/test/job-fields.ts, got none`)
  return row
}

const isWords = (value: FieldRow['default']): value is { readonly words: string } => typeof value === 'object'

function defaultText({ path, isRequired }: SchemaField): string {
  const { default: otherwise } = rowOf(path)
  if (isRequired) return '*required*'
  if (otherwise === undefined) return ''
  return isWords(otherwise) ? otherwise.words : `\`${String(otherwise)}\``
}

export function fieldTable(): string {
  const rows = jobFields().map((field) => {
    const { about, unit, example } = rowOf(field.path)
    const what = described(field.schema).replace('an object with', 'an object, told apart by')
    const cells = [`\`${field.path}\``, about, what, unit ?? '', defaultText(field), `\`${JSON.stringify(example)}\``]
    return `| ${cells.map((cell) => cell.replaceAll('|', String.raw`\|`)).join(' | ')} |`
  })
  return ['| field | meaning | takes | unit | default | example |', '|---|---|---|---|---|---|', ...rows].join('\n')
}

/** The schema with what each field means, for editors. */
export function schemaFile(): string {
  const schema = JSON.parse(JSON.stringify(JobSpecSchema)) as Record<string, unknown>
  const { properties, ...rest } = explain(schema as JobSchema, '') as { readonly properties: Record<string, object> }
  const head = { $schema: 'http://json-schema.org/draft-07/schema#', title: 'A job of Starling' }
  const model = { ...properties['model'], ...modelSchema() }
  const definitions = { [LAYER_DEFINITION]: layerSchema() }
  return `${JSON.stringify({ ...head, ...rest, properties: { ...properties, model }, definitions }, null, 2)}\n`
}

function explain(schema: JobSchema, prefix: string): object {
  if (schema.properties === undefined) return schema
  const properties = Object.entries(schema.properties).map(([name, inner]) => {
    const path = `${prefix}${name}`
    const { about, unit, default: otherwise, example } = rowOf(path)
    const objects = (inner.anyOf ?? [inner]).filter(({ properties: fields }) => fields !== undefined)
    const deeper = (one: JobSchema): object => explain(one, `${path}${objects.length > 1 ? tagOf(one) : ''}.`)
    const described = inner.anyOf === undefined ? deeper(inner) : { ...inner, anyOf: inner.anyOf.map(deeper) }
    const notes = [about, ...(unit === undefined ? [] : [`Unit: ${unit}.`])]
    if (isWords(otherwise)) notes.push(`Default: ${otherwise.words}.`)
    const value = otherwise === undefined || isWords(otherwise) ? {} : { default: otherwise }
    return [name, { description: notes.join(' '), ...value, examples: [example], ...described }]
  })
  return { ...schema, properties: Object.fromEntries(properties) }
}

/** The files as they are on disk. */
export const schemaOnDisk = (): string => readFileSync(SCHEMA_FILE, 'utf8')
export const jobsPage = (): string => readFileSync(PAGE, 'utf8')

const [BEGIN, END] = ['<!-- generated: fields -->\n', '\n<!-- end -->']

/** The page with its table as the schema has it now. */
export function renewedJobs(page: string): string {
  const [from, to] = [page.indexOf(BEGIN), page.indexOf(END)]
  if (from < 0 || to < from) throw new Error(`expected "${BEGIN.trim()}" and its end in docs/JOBS.md, got neither`)
  return page.slice(0, from + BEGIN.length) + fieldTable() + page.slice(to)
}

export function writeJobDocs(): void {
  writeFileSync(SCHEMA_FILE, schemaFile())
  writeFileSync(PAGE, renewedJobs(jobsPage()))
}
