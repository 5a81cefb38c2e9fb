// Prometheus' text format, read as strictly as its specification says: a line that does not fit fails the test.
import assert from 'node:assert/strict'
import { ROUTES } from '@starling-grid/protocol'

export interface Sample {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

const COMMENT = /^# (HELP|TYPE) ([a-zA-Z_:][\w:]*) (.+)$/
const SAMPLE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (-?[\d.e+-]+|[+-]Inf|NaN|Nan)$/
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)/g
/** A histogram or summary has samples with one of these ends. */
const END = /_(bucket|sum|count)$/

export function samplesIn(text: string): readonly Sample[] {
  assert.ok(text.endsWith('\n'), 'the last line ends')
  const typed = new Set<string>()
  return text.split('\n').flatMap((line) => {
    if (line === '') return []
    const [, kind, of = ''] = COMMENT.exec(line) ?? []
    if (kind !== undefined) {
      if (kind === 'TYPE') assert.equal(typed.has(of), false, `${of} is typed once`)
      if (kind === 'TYPE') typed.add(of)
      return []
    }
    const [whole, name = '', labels = '', value = ''] = SAMPLE.exec(line) ?? []
    assert.ok(whole !== undefined, line)
    assert.ok(typed.has(name) || typed.has(name.replace(END, '')), `${name} has a type`)
    return [{ name, labels: labelsIn(labels), value: Number(value.replace('Inf', 'Infinity')) }]
  })
}

function labelsIn(text: string): Record<string, string> {
  const found = [...text.matchAll(LABEL)]
  assert.equal(found.map(([whole]) => whole).join(''), text)
  return Object.fromEntries(found.map(([, label = '', value = '']) => [label, value]))
}

export interface Exported {
  /** with those that a counter has before its first event */
  readonly series: ReadonlySet<string>
  readonly labels: ReadonlySet<string>
}

/** A counter with labels has no sample before its first event, and its type all the same. */
export function exportedIn(text: string): Exported {
  const samples = samplesIn(text)
  const typed = [...text.matchAll(/^# TYPE (\S+) (\w+)$/gm)].flatMap(([, name = '', type]) =>
    type === 'histogram' ? [`${name}_bucket`, `${name}_sum`, `${name}_count`] : [name],
  )
  return {
    series: new Set(typed),
    labels: new Set(samples.flatMap(({ labels }) => Object.keys(labels))),
  }
}

export async function scrape(url: string, headers: Record<string, string> = {}): Promise<readonly Sample[]> {
  return samplesIn(await scrapeText(url, headers))
}

export async function scrapeText(url: string, headers: Record<string, string> = {}): Promise<string> {
  const response = await fetch(url + ROUTES.metrics, { headers })
  assert.equal(response.status, 200)
  assert.equal(response.headers.get('content-type'), 'text/plain; version=0.0.4; charset=utf-8')
  return response.text()
}
