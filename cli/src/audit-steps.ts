// Does every committed step hold the gradient of the blocks that its record names, and no other? Each is computed once
// more, from what the volunteers of an audited grid kept (GridOptions.audited). What they kept is believed only as far
// as the chain's digests prove it.
import { readFile } from 'node:fs/promises'
import { createNodeHost } from '@starling-grid/client-node/host'
import { type WitnessPaths, witnessPaths } from '@starling-grid/client-node/witness-folder'
import { outerOptimizer, parseModelSpec, readParameters } from '@starling-grid/model'
import {
  extend,
  genesis,
  GridError,
  type ExecutorKind,
  jobId,
  type JobTerms,
  JobTermsSchema,
  MAX_MESSAGE_BYTES,
  parse,
  parseJson,
  pathTo,
  readSafetensors,
  ROUTES,
  type StepRecord,
  systemClock,
} from '@starling-grid/protocol'
import { Batches, Compute, LocalVersion, Shards, StepAudit, type StepVerdict } from '@starling-grid/volunteer'
import type { Grid } from './grid/grid.ts'

export interface StepsAudited {
  /** steps that were computed again */
  readonly audited: number
  /** of these, the ones that are not what their record says; and steps whose sum no volunteer kept */
  readonly auditFailed: number
  /**
   * steps that cannot be computed again: of the parameter server, of local rounds, encoded, or with a given
   * sum
   */
  readonly auditSkipped: number
  /** largest ‖recomputed − committed‖ / ‖committed‖ of a step's gradient; null: none was computed again */
  readonly auditWorst: number | null
  /**
   * the parameters that the audited steps lead to are those of the exported model, bit by bit; null: the audit met no
   * exported version
   */
  readonly auditReached: boolean | null
}

export interface AuditOptions {
  readonly executor?: ExecutorKind
  /** told of each step that is wrong */
  say(text: string): void
  /** after each step */
  show?(done: number, of: number): void
}

/** Of a run that ended, or rests. @throws GridError 'usage' when the grid kept nothing */
export async function auditSteps(grid: Grid, job: string, options: AuditOptions): Promise<StepsAudited> {
  const paths = witnessPaths(grid.witness, jobId(job))
  const terms = await termsIn(paths)
  const records = await grid.records(job)
  const desk = await openDesk(grid, terms, options.executor ?? 'webgpu')
  try {
    const verdicts: StepVerdict[] = []
    const model = await exported(grid, job, desk)
    let auditReached: boolean | null = null
    for (const record of records) {
      const verdict = await auditOne(desk, paths, record)
      if (verdict.fault !== undefined) options.say(`step ${verdict.v}: ${verdict.fault}`)
      verdicts.push(verdict)
      options.show?.(verdicts.length, records.length)
      if (model !== undefined && desk.held.version?.id === model.id)
        auditReached = model.parameters.every((value, i) => value === desk.held.parameters[i])
    }
    return { ...summary(verdicts), auditReached }
  } finally {
    desk.compute.executor.destroy()
  }
}

/** For people. */
export function auditText({ audited, auditFailed, auditSkipped, auditWorst }: StepsAudited): string {
  const skipped = auditSkipped === 0 ? '' : `; ${auditSkipped} cannot be computed again`
  return (
    `${audited} steps computed again, ${auditFailed} wrong; ` +
    `gradients differ by ${auditWorst === null ? 'nothing known' : auditWorst.toPrecision(2)} at most${skipped}`
  )
}

/** Of several jobs. */
export function joinedAudits(all: readonly StepsAudited[]): StepsAudited {
  const sum = (of: (one: StepsAudited) => number): number => all.reduce((total, one) => total + of(one), 0)
  const worst = all.flatMap(({ auditWorst }) => auditWorst ?? [])
  const reached = all.flatMap(({ auditReached }) => auditReached ?? [])
  return {
    audited: sum((one) => one.audited),
    auditFailed: sum((one) => one.auditFailed),
    auditSkipped: sum((one) => one.auditSkipped),
    auditWorst: worst.length === 0 ? null : Math.max(...worst),
    auditReached: reached.length === 0 ? null : reached.every(Boolean),
  }
}

interface Desk {
  readonly held: LocalVersion
  readonly compute: Compute
  readonly audit: StepAudit
  /** id of the last record's version, whether its parameters are known or not */
  version: ReturnType<typeof genesis>
}

async function termsIn(paths: WitnessPaths): Promise<JobTerms> {
  const text = await readFile(paths.terms, 'utf8').catch(() => undefined)
  if (text === undefined)
    throw new GridError(
      'usage',
      'expected volunteers that kept their sums for the audit, found none; start the grid for an audit',
    )
  return parse(JobTermsSchema, parseJson(text, MAX_MESSAGE_BYTES, 'terms of a job'), 'terms of a job')
}

async function openDesk(grid: Grid, terms: JobTerms, kind: ExecutorKind): Promise<Desk> {
  const { optimizer, clipNorm, local, blockSamples, batchBlocks, encoding = 'f32', precision = 'f32' } = terms
  const spec = parseModelSpec(terms.model)
  const host = createNodeHost({ coordinatorUrl: grid.direct, executor: kind })
  const held = new LocalVersion({ spec, optimizer, clipNorm, ...(local ? { outer: outerOptimizer(local) } : {}) })
  const version = genesis(terms.id, terms.modelHash, terms.seed, terms.initial)
  // otherwise a volunteer kept the version 0 that it fetched
  if (terms.initial === undefined) held.adoptInitial(version, terms.seed)
  const compute = new Compute(await host.createExecutor(spec, blockSamples), held, systemClock)
  const batches = new Batches(terms, new Shards(terms.dataset, (name) => shard(grid, name), host.shards), spec)
  return {
    held,
    compute,
    version,
    audit: new StepAudit({
      held,
      compute,
      batches,
      batchBlocks,
      isLossless: encoding === 'f32' && precision === 'f32',
    }),
  }
}

async function shard(grid: Grid, name: string): Promise<Uint8Array> {
  const response = await fetch(`${grid.direct}${pathTo(ROUTES.shard, { sha256: name })}`, {
    headers: { authorization: `Bearer ${grid.token}` },
  })
  if (!response.ok)
    throw new GridError('unsupported', `expected shard ${name.slice(0, 12)} for the audit, got HTTP ${response.status}`)
  return new Uint8Array(await response.arrayBuffer())
}

/** A version of the parameter server has no sum: the audit goes on from the next state that a member took over. */
async function auditOne(desk: Desk, paths: WitnessPaths, record: StepRecord): Promise<StepVerdict> {
  const parent = desk.version
  desk.version = extend(parent, record)
  if (record.kind === 'async') return { v: record.v, skipped: "it is the parameter server's" }
  if (desk.held.version?.id !== parent.id && !(await adoptKept(desk, paths, parent)))
    return { v: record.v, fault: 'no volunteer kept the version before it' }
  const bytes = await readFile(paths.sum(record.gradDigest)).catch(() => undefined)
  if (bytes === undefined) return { v: record.v, fault: 'no volunteer kept its sum' }
  return desk.audit.step(record, new Float32Array(new Uint8Array(bytes).buffer))
}

async function adoptKept({ held, audit }: Desk, paths: WitnessPaths, version: Desk['version']): Promise<boolean> {
  const bytes = await readFile(paths.state(version.id)).catch(() => undefined)
  if (bytes === undefined) return false
  audit.adopt(held.decode(new Uint8Array(bytes), version), version)
  return true
}

/** The model that people get, and the id of its version. */
async function exported(
  grid: Grid,
  job: string,
  { held }: Desk,
): Promise<{ readonly id: string; readonly parameters: Float32Array } | undefined> {
  const response = await fetch(`${grid.direct}${pathTo(ROUTES.export, { id: job })}`, {
    headers: { authorization: `Bearer ${grid.token}` },
  })
  if (!response.ok) return undefined
  const bytes = new Uint8Array(await response.arrayBuffer())
  return { id: readSafetensors(bytes).metadata['id'] ?? '', parameters: readParameters(bytes, held.layout) }
}

function summary(verdicts: readonly StepVerdict[]): Omit<StepsAudited, 'auditReached'> {
  const deviations = verdicts.flatMap(({ deviation }) => deviation ?? [])
  return {
    audited: deviations.length,
    auditFailed: verdicts.filter(({ fault }) => fault !== undefined).length,
    auditSkipped: verdicts.filter(({ skipped }) => skipped !== undefined).length,
    auditWorst: deviations.length === 0 ? null : Math.max(...deviations),
  }
}
