// Every query of the Grafana dashboard and of the alerts names what a coordinator exports, with the labels that it has.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { parser } from '@prometheus-io/lezer-promql'
import { parse } from 'yaml'
import { OWNER, smallJob, startCoordinator, submit, until, volunteer } from './fixture.ts'
import { type Exported, exportedIn, scrapeText } from './prometheus-text.ts'

const DEPLOY = new URL('../../deploy/', import.meta.url)
const textOf = (path: string): string => readFileSync(new URL(path, DEPLOY), 'utf8')

/** Labels and series that Prometheus itself adds. */
const OF_PROMETHEUS = new Set(['instance', 'job', 'le'])
const SERIES_OF_PROMETHEUS = new Set(['up'])

interface Query {
  readonly where: string
  readonly text: string
}

interface Panel {
  readonly title: string
  readonly targets?: readonly { readonly expr: string; readonly legendFormat: string }[]
}

interface Dashboard {
  readonly panels: readonly Panel[]
  readonly templating: { readonly list: readonly { readonly name: string; readonly definition?: string }[] }
}

interface Rules {
  readonly groups: readonly { readonly rules: readonly { readonly alert: string; readonly expr: string }[] }[]
}

const dashboard = JSON.parse(textOf('grafana/starling.json')) as Dashboard
const alerts = (parse(textOf('prometheus/alerts.yml')) as Rules).groups.flatMap(({ rules }) => rules)

/** Grafana puts values in place of its variables before Prometheus reads the query. */
function filled(text: string): string {
  return text.replaceAll('$__rate_interval', '1m').replaceAll(/\$\w+/g, '.*')
}

const queries: readonly Query[] = [
  ...dashboard.panels.flatMap(({ title, targets = [] }) =>
    targets.map(({ expr }) => ({ where: title, text: filled(expr) })),
  ),
  ...alerts.map(({ alert, expr }) => ({ where: alert, text: expr })),
]

interface Named {
  readonly series: readonly string[]
  readonly labels: readonly string[]
}

/** Prometheus' own grammar. @throws AssertionError when the query does not parse */
function namesIn({ where, text }: Query): Named {
  const series: string[] = []
  const labels: string[] = []
  parser.parse(text).iterate({
    enter({ type, from, to }) {
      assert.equal(type.isError, false, `${where}: ${text} at ${from}`)
      if (type.name === 'Identifier') series.push(text.slice(from, to))
      if (type.name === 'LabelName') labels.push(text.slice(from, to))
    },
  })
  return { series, labels }
}

/** A run with a step, a validation and a checkpoint, whose coordinator exports all that it ever does. */
async function everything(): Promise<Exported> {
  const { url } = await startCoordinator()
  await submit(url, smallJob({ stop: { epochs: 1000 }, volunteers: { min: 1 } }))
  const member = volunteer(url, { stepMs: 20 })
  await until(
    url,
    'a step, a validation and a checkpoint',
    ({ lastStep, lastValidation, checkpoint }) => lastStep !== null && lastValidation !== null && checkpoint !== null,
  )
  member.raw({ type: 'nonsense' }) // so that a refusal has its code
  await member.heard('refused')
  return exportedIn(await scrapeText(url, OWNER))
}

test('every query of the dashboard and of the alerts parses and names series that a coordinator exports', async () => {
  const { series, labels } = await everything()
  const wrong = queries.flatMap((query) => {
    const named = namesIn(query)
    assert.ok(named.series.length > 0, query.text)
    return named.series
      .filter((name) => !series.has(name) && !SERIES_OF_PROMETHEUS.has(name))
      .map((name) => `${query.where}: ${name}`)
  })
  assert.deepEqual(wrong, [])
  const strange = queries.flatMap((query) =>
    namesIn(query)
      .labels.filter((label) => !labels.has(label) && !OF_PROMETHEUS.has(label))
      .map((label) => `${query.where}: label ${label}`),
  )
  assert.deepEqual(strange, [])
  for (const { name, definition } of dashboard.templating.list) {
    const [, of = '', label = ''] = /^label_values\((\w+), (\w+)\)$/.exec(definition ?? '') ?? []
    if (definition !== undefined) assert.ok(series.has(of) && (labels.has(label) || OF_PROMETHEUS.has(label)), name)
  }
  assert.ok(queries.length > 40, `${queries.length} queries were looked up`)
})

test('every alert has its line in docs/OPERATIONS.md', () => {
  const page = readFileSync(new URL('../../docs/OPERATIONS.md', import.meta.url), 'utf8')
  assert.deepEqual(
    alerts.map(({ alert }) => alert).filter((alert) => !page.includes(`\`${alert}\``)),
    [],
  )
})

test('a query that names what no coordinator exports would be found', () => {
  const { series } = namesIn({ where: 'here', text: 'rate(starling_nothing_total{job_id="a"}[5m])' })
  assert.deepEqual(series, ['starling_nothing_total'])
  assert.throws(() => namesIn({ where: 'here', text: 'sum by (' }))
})
