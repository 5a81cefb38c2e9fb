// `starling operator` between a cluster and a coordinator, each as it is used: a coordinator and volunteers in
// processes of their own, and an API server over HTTP. The whole runs against the server of kube-server.ts, and again
// against a real kube-apiserver where this machine has one.
import assert from 'node:assert/strict'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import type { Log } from '@starling-grid/coordinator'
import { systemClock } from '@starling-grid/protocol'
import { parseAllDocuments } from 'yaml'
import { Grid } from '../src/grid/grid.ts'
import { startChild, stopChild } from '../src/grid/processes.ts'
import { KubeApi } from '../src/operator/kube-api.ts'
import { Operator } from '../src/operator/operator.ts'
import type { TrainingJobStatus } from '../src/operator/training-job.ts'
import { KubeClient, NAMESPACE } from './kube-client.ts'
import { KubeServer } from './kube-server.ts'
import { noRealKube, startRealKube } from './real-kube-server.ts'

const DEPLOY = fileURLToPath(new URL('../../deploy/kubernetes/', import.meta.url))
const VOLUNTEERS = 'starling-volunteers'
const PASS_MS = 100
const LIMIT_MS = 120_000

const folder = await mkdtemp(join(tmpdir(), 'starling-operator-'))
after(() => rm(folder, { recursive: true, force: true }))

const JOB = {
  name: 'Digits of a cluster',
  owner: 'tests',
  purpose: 'To be trained in a cluster.',
  model: { name: 'linear', input: [1, 28, 28], layers: [{ type: 'flatten' }, { type: 'linear', name: 'fc', out: 10 }] },
  dataset: { source: 'digits' },
  optimizer: { type: 'sgd', lr: 0.01, momentum: 0.9 },
  blockSamples: 256,
  batchBlocks: 4,
  volunteers: { min: 1, max: 3 },
  stop: { epochs: 1 },
  seed: 3,
  mode: 'ring',
}
/** Longer than any test. */
const LONG = { ...JOB, stop: { epochs: 5000 } }

async function documentsOf(file: string): Promise<Record<string, unknown>[]> {
  return parseAllDocuments(await readFile(join(DEPLOY, file), 'utf8')).map(
    (one) => one.toJS() as Record<string, unknown>,
  )
}

/** An operator in this process, and its end. */
function startOperator(grid: Grid, kube: KubePlace) {
  const ending = new AbortController()
  const lines: string[] = []
  const log: Log = ({ message }) => void lines.push(message)
  const operator = new Operator({
    cluster: new KubeApi({ url: kube.url, namespace: NAMESPACE, tokenFile: kube.tokenFile, ca: kube.ca }),
    api: grid.api,
    clock: systemClock,
    log,
    deployment: VOLUNTEERS,
    most: 10,
    passMs: PASS_MS,
  })
  const ended = operator.run(ending.signal)
  const stop = (): Promise<void> => {
    ending.abort()
    return ended
  }
  return { lines, stop }
}

interface KubePlace {
  readonly url: string
  readonly client: KubeClient
  readonly tokenFile?: string | undefined
  readonly ca?: string | undefined
}

async function until<T>(what: string, look: () => Promise<T | false | undefined>): Promise<T> {
  const limit = Date.now() + LIMIT_MS
  for (;;) {
    const seen = await look()
    if (seen !== false && seen !== undefined) return seen
    assert.ok(Date.now() < limit, `expected ${what} within ${LIMIT_MS} ms`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

const statusIn = async ({ client }: KubePlace, name: string): Promise<TrainingJobStatus> =>
  ((await client.get(name)).body.status ?? {}) as TrainingJobStatus

const phaseIs = (kube: KubePlace, name: string, phase: string): Promise<TrainingJobStatus> =>
  until(`${name} to be ${phase}`, async () => {
    const status = await statusIn(kube, name)
    return status.phase === phase && status
  })

/** What holds of every API server. */
function behaves(place: () => KubePlace): void {
  test('a TrainingJob is trained, told of, and its volunteers come and go with it', async () => {
    const kube = place()
    const grid = await Grid.start()
    const operator = startOperator(grid, kube)
    try {
      assert.equal((await kube.client.create('digits', { job: JOB })).status, 201)
      await phaseIs(kube, 'digits', 'Waiting')
      await until('three replicas', async () => (await kube.client.replicas(VOLUNTEERS)) === 3)
      grid.addVolunteer({ executor: 'reference' }) // as the controller of Deployments would
      const {
        step = 0,
        loss = 0,
        accuracy = 0,
        jobId = '',
        conditions = [],
      } = await phaseIs(kube, 'digits', 'Finished')
      assert.ok(step > 0 && loss > 0 && accuracy > 0.1, JSON.stringify({ step, loss, accuracy }))
      assert.equal((await grid.run(jobId)).version.v, step)
      assert.equal(conditions.find(({ type }) => type === 'Finished')?.status, 'True')
      await until('no replica', async () => (await kube.client.replicas(VOLUNTEERS)) === 0)
      await kube.client.delete('digits')
      await until('its end', async () => (await kube.client.get('digits')).status === 404)
      assert.equal((await grid.run(jobId)).phase, 'finished', 'its model stays')
    } finally {
      await operator.stop()
      await grid.stop()
    }
  })

  test('operators that end at any moment leave one job of each TrainingJob', async () => {
    const kube = place()
    const grid = await Grid.start()
    let operator = startOperator(grid, kube)
    try {
      for (let i = 0; i < 4; i++)
        await kube.client.create(`often-${i}`, { job: { ...LONG, seed: i }, whenDeleted: 'Delete' })
      for (let i = 0; i < 6; i++) {
        await operator.stop()
        operator = startOperator(grid, kube)
        await new Promise((resolve) => setTimeout(resolve, 40 * i))
      }
      for (let i = 0; i < 4; i++) await phaseIs(kube, `often-${i}`, 'Waiting')
      const { jobs } = await grid.api.jobs()
      assert.equal(jobs.length, 4)
      assert.equal(new Set(jobs.map(({ job }) => job.reference)).size, 4)
      await kube.client.change('often-0', { paused: true })
      await phaseIs(kube, 'often-0', 'Paused')
      await kube.client.change('often-0', { paused: false })
      await phaseIs(kube, 'often-0', 'Waiting')
      for (let i = 0; i < 4; i++) await kube.client.delete(`often-${i}`)
      grid.addVolunteer({ executor: 'reference' })
      await until('no TrainingJob', async () => {
        const left = await Promise.all([0, 1, 2, 3].map((i) => kube.client.get(`often-${i}`)))
        return left.every(({ status }) => status === 404)
      })
      assert.deepEqual((await grid.api.jobs()).jobs, [], 'whenDeleted: Delete takes the jobs along')
    } finally {
      await operator.stop()
      await grid.stop()
    }
  })

  test('a job that the coordinator refuses fails with its mistakes, and is taken when they are corrected', async () => {
    const kube = place()
    const grid = await Grid.start()
    const operator = startOperator(grid, kube)
    try {
      const layers = [{ type: 'flatten' }, { type: 'linier', name: 'fc', out: 10 }]
      await kube.client.create('wrong', { job: { ...LONG, model: { ...LONG.model, layers } } })
      const { message = '' } = await phaseIs(kube, 'wrong', 'Failed')
      assert.match(message, /model\.layers\[1\]\.type: expected .*did you mean `linear`\?/)
      await kube.client.change('wrong', { job: LONG })
      await phaseIs(kube, 'wrong', 'Waiting')
      await kube.client.change('wrong', { job: { ...LONG, seed: 4 } })
      await until('a condition', async () => {
        const { conditions = [] } = await statusIn(kube, 'wrong')
        return conditions.some(({ reason }) => reason === 'SpecChanged')
      })
      await kube.client.delete('wrong')
      await until('its end', async () => (await kube.client.get('wrong')).status === 404)
    } finally {
      await operator.stop()
      await grid.stop()
    }
  })
}

const deployment = (await documentsOf('volunteers.yaml')).find(({ kind }) => kind === 'Deployment') ?? {}
const inNamespace = { ...deployment, metadata: { ...(deployment['metadata'] as object), namespace: NAMESPACE } }

describe('with an API server of these tests', { timeout: 600_000 }, () => {
  const server = new KubeServer()
  let kube: KubePlace | undefined
  const place = (): KubePlace => kube ?? assert.fail('not started')
  test('it starts', async () => {
    const url = await server.start()
    kube = { url, client: new KubeClient({ url }) }
    assert.equal((await kube.client.deploy(inNamespace)).status, 201)
  })
  behaves(place)

  test('conflicts, refusals, broken watches and forgotten versions only delay it', async () => {
    const grid = await Grid.start()
    const operator = startOperator(grid, place())
    try {
      await place().client.create('rough', { job: LONG })
      server.failNext(2, 409)
      await phaseIs(place(), 'rough', 'Waiting')
      server.failNext(2, 500)
      await place().client.change('rough', { paused: true })
      await phaseIs(place(), 'rough', 'Paused')
      server.forgetEvents()
      await place().client.change('rough', { paused: false })
      server.forgetEvents()
      await phaseIs(place(), 'rough', 'Waiting')
      assert.ok((server.seen.get('PATCH 409') ?? 0) >= 2 && (server.seen.get('PATCH 500') ?? 0) >= 2)
      await place().client.delete('rough')
      await until('its end', async () => (await place().client.get('rough')).status === 404)
      assert.equal((await grid.api.jobs()).jobs.length, 1)
    } finally {
      await operator.stop()
      await grid.stop()
    }
  })

  test('while the coordinator is away the status says so, and goes on when it is back', async () => {
    const grid = await Grid.start()
    const operator = startOperator(grid, place())
    const reachable = async (): Promise<string | undefined> =>
      (await statusIn(place(), 'alone')).conditions?.find(({ type }) => type === 'CoordinatorReachable')?.status
    try {
      await place().client.create('alone', { job: LONG })
      await phaseIs(place(), 'alone', 'Waiting')
      await grid.killCoordinator()
      await until('the condition', async () => (await reachable()) === 'False')
      await grid.restartCoordinator()
      await until('the condition', async () => (await reachable()) === 'True')
      assert.equal((await grid.api.jobs()).jobs.length, 1)
      await place().client.delete('alone')
      await until('its end', async () => (await place().client.get('alone')).status === 404)
    } finally {
      await operator.stop()
      await grid.stop()
    }
  })

  test('the command looks after jobs until it is told to end, and answers its probe', async () => {
    const grid = await Grid.start()
    let told: (port: number) => void = () => undefined
    const probe = new Promise<number>((resolve) => {
      told = resolve
    })
    const child = startChild({
      name: 'the operator',
      args: [
        ...['operator', '--url', grid.direct, '--kube-url', place().url, '--namespace', NAMESPACE],
        ...['--deployment', VOLUNTEERS, '--probe-port', '0', '--log-format', 'json'],
      ],
      env: { STARLING_TOKEN: grid.token },
      onLine: (line) => {
        const { probePort } = JSON.parse(line) as { probePort?: number }
        if (probePort !== undefined) told(probePort)
      },
    })
    try {
      await place().client.create('by-command', { job: LONG })
      await phaseIs(place(), 'by-command', 'Waiting')
      assert.equal((await fetch(`http://127.0.0.1:${await probe}/healthz`)).status, 200)
      await place().client.delete('by-command')
      await until('its end', async () => (await place().client.get('by-command')).status === 404)
      child.kill('SIGTERM')
      assert.equal(await child.ended, 0, child.lines.join('\n'))
    } finally {
      await stopChild(child)
      await grid.stop()
    }
  })

  test('it stops', () => server.stop())
})

const skip = noRealKube() ?? false
describe('with a kube-apiserver', { skip, timeout: 600_000 }, () => {
  let kube: (KubePlace & { readonly stop: () => Promise<void> }) | undefined
  let rights: KubePlace | undefined
  const place = (): KubePlace => rights ?? assert.fail('not started')

  test('it takes the manifests: the schema of TrainingJobs is structural, and each object valid', async () => {
    const real = await startRealKube(folder)
    const ca = await readFile(real.caFile, 'utf8')
    const client = new KubeClient({ url: real.url, token: (await readFile(real.tokenFile, 'utf8')).trim(), ca })
    kube = { ...real, client, ca }
    const [crd = {}] = await documentsOf('trainingjob.crd.yaml')
    const crds = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'
    const { status, body } = await client.ask('POST', crds, crd)
    assert.equal(status, 201, body.message)
    await until('the CRD', async () => {
      const answer = await client.ask('GET', `${crds}/trainingjobs.starling-grid.io`)
      const { conditions } = (answer.body.status ?? {}) as {
        conditions?: { type: string; status: string; message: string }[] | null
      }
      const wrong = conditions?.find(({ type }) => type === 'NonStructuralSchema')
      assert.equal(wrong, undefined, wrong?.message)
      return conditions?.some((one) => one.type === 'Established' && one.status === 'True')
    })
    assert.equal((await client.deploy(inNamespace)).status, 201)
  })

  test('it takes every manifest, field by field', async () => {
    const { client } = kube ?? assert.fail('not started')
    const [namespace = {}] = await documentsOf('namespace.yaml')
    assert.equal((await client.ask('POST', '/api/v1/namespaces', namespace)).status, 201)
    const files = [
      'secret.example',
      'coordinator',
      'ingress',
      'volunteers',
      'volunteers-hpa',
      'operator',
      'example.trainingjob',
    ]
    for (const object of (await Promise.all(files.map((file) => documentsOf(`${file}.yaml`)))).flat()) {
      const { apiVersion, kind } = object as { apiVersion: string; kind: string }
      const plural = `${kind.toLowerCase()}${kind === 'Ingress' ? 'es' : 's'}`
      const group = apiVersion.includes('/') ? `/apis/${apiVersion}` : `/api/${apiVersion}`
      // Strict: from Kubernetes 1.25 on a field that is none is refused.
      const path = `${group}/namespaces/starling/${plural}?dryRun=All&fieldValidation=Strict`
      const { status, body } = await client.ask('POST', path, object)
      const isTooNew = status === 404 && apiVersion === 'autoscaling/v2' // of 1.23
      assert.ok(status === 201 || isTooNew, `${kind}: ${body.message}`)
    }
  })

  test('the operator has the rights of its Role, and no others', async () => {
    const { client, url, ca } = kube ?? assert.fail('not started')
    for (const { kind, ...object } of await documentsOf('operator.yaml')) {
      const plural = { ServiceAccount: '/api/v1/namespaces/default/serviceaccounts' }[String(kind)]
      const rbac = `/apis/rbac.authorization.k8s.io/v1/namespaces/default/${String(kind).toLowerCase()}s`
      if (kind === 'Deployment') continue
      const given = JSON.parse(
        JSON.stringify({ kind, ...object }).replaceAll('"namespace":"starling"', '"namespace":"default"'),
      )
      const { status, body } = await client.ask('POST', plural ?? rbac, given as object)
      assert.equal(status, 201, `${String(kind)}: ${body.message}`)
    }
    const { body } = await client.ask('POST', '/api/v1/namespaces/default/serviceaccounts/starling-operator/token', {
      apiVersion: 'authentication.k8s.io/v1',
      kind: 'TokenRequest',
      spec: {},
    })
    const { token = '' } = body.status as { token?: string }
    const tokenFile = join(folder, 'operator-token')
    await writeFile(tokenFile, token)
    rights = { url, ca, tokenFile, client }
    const own = new KubeClient({ url, token, ca })
    for (const [method, path] of [
      ['GET', '/api/v1/namespaces/default/secrets'],
      ['GET', '/api/v1/namespaces/default/pods'],
      ['DELETE', '/apis/apps/v1/namespaces/default/deployments/starling-volunteers'],
      ['GET', '/apis/starling-grid.io/v1alpha1/namespaces/kube-system/trainingjobs'],
      ['DELETE', '/apis/starling-grid.io/v1alpha1/namespaces/default/trainingjobs/none'],
      ['GET', '/apis/apps/v1/namespaces/default/deployments/another/scale'],
    ] as const)
      assert.equal((await own.ask(method, path)).status, 403, `${method} ${path}`)
  })
  behaves(place)

  test('it stops', () => kube?.stop())
})
