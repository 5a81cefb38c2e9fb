// deploy/kubernetes/trainingjob.crd.yaml: the schema of a job as Kubernetes wants schemas. `npm run docs` writes it;
// deploy.test.ts fails while it differs. A structural schema names each field once, with one type; what is a choice of
// several objects in ours becomes one object with the fields of all. The coordinator checks the whole.
import { readFileSync, writeFileSync } from 'node:fs'
import { Document } from 'yaml'
import { GROUP, PLURAL, TrainingJobSchema, VERSION } from '../src/operator/training-job.ts'

const JOB_SCHEMA = new URL('../../docs/job.schema.json', import.meta.url)
const FILE = new URL('../../deploy/kubernetes/trainingjob.crd.yaml', import.meta.url)
const HEAD = ' Made by `npm run docs` from docs/job.schema.json: edit the schema of a job instead.'

/** What our schemas use of JSON Schema. */
interface JsonSchema {
  readonly type?: string
  readonly const?: unknown
  readonly anyOf?: readonly JsonSchema[]
  readonly properties?: Readonly<Record<string, JsonSchema>>
  readonly patternProperties?: object
  readonly required?: readonly string[]
  readonly items?: JsonSchema | readonly JsonSchema[]
  readonly exclusiveMinimum?: number
  readonly exclusiveMaximum?: number
  readonly [keyword: string]: unknown
}

/** Keywords that mean the same in both. */
const SAME = [
  'type',
  'description',
  'minimum',
  'maximum',
  'minLength',
  'maxLength',
  'minItems',
  'maxItems',
  'pattern',
] as const

export function structural(schema: JsonSchema, path = 'spec.job'): object {
  const { anyOf, properties, items, required } = schema
  if (anyOf !== undefined) return { ...described(schema), ...choice(anyOf, path) }
  if ('const' in schema) return { ...described(schema), type: typeof schema.const, enum: [schema.const] }
  if (schema.type === undefined || schema.patternProperties !== undefined)
    return { ...described(schema), type: 'object', 'x-kubernetes-preserve-unknown-fields': true }
  const fields = Object.entries(properties ?? {}).map(([name, inner]) => [name, structural(inner, `${path}.${name}`)])
  return {
    ...Object.fromEntries(SAME.flatMap((keyword) => (keyword in schema ? [[keyword, schema[keyword]]] : []))),
    ...bounds(schema),
    ...(properties === undefined ? {} : { properties: Object.fromEntries(fields) }),
    ...(required === undefined || required.length === 0 ? {} : { required: [...required] }),
    ...(items === undefined ? {} : itemsOf(items, path)),
  }
}

const described = ({ description }: JsonSchema): object => (description === undefined ? {} : { description })

/** OpenAPI 3.0 has them as flags. */
function bounds({ exclusiveMinimum, exclusiveMaximum }: JsonSchema): object {
  return {
    ...(exclusiveMinimum === undefined ? {} : { minimum: exclusiveMinimum, exclusiveMinimum: true }),
    ...(exclusiveMaximum === undefined ? {} : { maximum: exclusiveMaximum, exclusiveMaximum: true }),
  }
}

/** A pair is a list of its values' one type. */
function itemsOf(items: JsonSchema | readonly JsonSchema[], path: string): object {
  const [first = {}, ...others] = [items].flat() as readonly JsonSchema[]
  const isPair = others.length > 0
  return {
    items: structural(first, `${path}[]`),
    ...(isPair ? { minItems: 1 + others.length, maxItems: 1 + others.length } : {}),
  }
}

function choice(nested: readonly JsonSchema[], path: string): object {
  const variants = nested.flatMap((variant) => variant.anyOf ?? [variant])
  if (variants.every((variant) => typeof variant.const === 'string'))
    return { type: 'string', enum: variants.map((variant) => variant.const) }
  if (variants.every(({ type }) => type === 'object')) return allFields(variants, path)
  const isNumber = ({ type }: JsonSchema): boolean => type === 'number' || type === 'integer'
  if (variants.every(isNumber)) return { type: 'number', anyOf: variants.map(rangeOf) }
  if (variants.some(isNumber) && variants.some((variant) => typeof variant.const === 'string'))
    return { 'x-kubernetes-int-or-string': true }
  throw new Error(`expected a choice of words, numbers or objects at ${path}, got ${JSON.stringify(variants)}`)
}

/** Types stand outside of choices. */
function rangeOf(variant: JsonSchema): object {
  const { type, ...range } = { ...variant, ...bounds(variant) }
  return { ...range, ...(type === 'integer' ? { multipleOf: 1 } : {}) }
}

function allFields(variants: readonly JsonSchema[], path: string): object {
  const fields = new Map<string, object>()
  for (const { properties = {} } of variants)
    for (const [name, inner] of Object.entries(properties)) {
      const other = fields.get(name)
      const own = structural(inner, `${path}.${name}`)
      fields.set(name, other === undefined ? own : both(other, own, `${path}.${name}`))
    }
  const required = [...fields.keys()].filter((name) => variants.every((variant) => variant.required?.includes(name)))
  return { type: 'object', properties: Object.fromEntries(fields), ...(required.length === 0 ? {} : { required }) }
}

function both(one: object, other: object, path: string): object {
  const [a, b] = [one, other] as readonly { readonly enum?: readonly string[]; readonly description?: string }[]
  if (a?.enum !== undefined && b?.enum !== undefined) {
    const { description: _, ...words } = a
    return { ...words, enum: [...new Set([...a.enum, ...b.enum])] }
  }
  if (JSON.stringify(one) === JSON.stringify(other)) return one
  throw new Error(`expected one schema of ${path}, got two: ${JSON.stringify([one, other])}`)
}

/**
 * The operator gives a job its reference. A structural schema has no layers inside layers: the coordinator checks them.
 */
function specSchema(): object {
  const { job: _, ...rest } = TrainingJobSchema.properties.spec.properties
  const { properties, ...job } = JSON.parse(readFileSync(JOB_SCHEMA, 'utf8')) as JsonSchema
  const { reference: _reference, model: { anyOf: _layers, ...model } = {}, ...fields } = properties ?? {}
  const others = Object.entries(rest).map(([name, schema]) => [name, structural(plain(schema), `spec.${name}`)])
  return {
    type: 'object',
    required: ['job'],
    properties: {
      job: { description: 'The job, as in a job file.', ...structural({ ...job, properties: { ...fields, model } }) },
      ...Object.fromEntries(others),
    },
  }
}

/** What a schema of TypeBox is as JSON. */
const plain = (schema: object): JsonSchema => JSON.parse(JSON.stringify(schema)) as JsonSchema

const column = (name: string, type: string, jsonPath: string, priority?: number) => ({
  name,
  type,
  jsonPath,
  ...(priority === undefined ? {} : { priority }),
})

export function crdFile(): string {
  const schema = {
    type: 'object',
    required: ['spec'],
    properties: {
      apiVersion: { type: 'string' },
      kind: { type: 'string' },
      metadata: { type: 'object' },
      spec: specSchema(),
      status: structural(plain(TrainingJobSchema.properties.status), 'status'),
    },
  }
  const version = {
    name: VERSION,
    served: true,
    storage: true,
    subresources: { status: {} },
    additionalPrinterColumns: [
      column('Phase', 'string', '.status.phase'),
      column('Step', 'integer', '.status.step'),
      column('Loss', 'number', '.status.loss'),
      column('Accuracy', 'number', '.status.accuracy'),
      column('Volunteers', 'integer', '.status.volunteers'),
      column('Age', 'date', '.metadata.creationTimestamp'),
      column('Job', 'string', '.status.jobId', 1),
      column('Message', 'string', '.status.message', 1),
    ],
    schema: { openAPIV3Schema: schema },
  }
  const names = {
    kind: 'TrainingJob',
    listKind: 'TrainingJobList',
    plural: PLURAL,
    singular: 'trainingjob',
    shortNames: ['tj'],
  }
  const document = new Document({
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: `${PLURAL}.${GROUP}` },
    spec: { group: GROUP, scope: 'Namespaced', names, versions: [version] },
  })
  document.commentBefore = HEAD
  return document.toString({ lineWidth: 0, aliasDuplicateObjects: false } as object)
}

export const crdOnDisk = (): string => readFileSync(FILE, 'utf8')

export function writeCrd(): void {
  writeFileSync(FILE, crdFile())
}
