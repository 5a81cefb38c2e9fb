// A short run on real digits, and the checks that every test of a whole grid ends with.
import assert from 'node:assert/strict'
import { fileURLToPath } from 'node:url'
import { demoJob, type Grid } from '@starling-grid/cli'
import { mlp } from '@starling-grid/model'
import type { JobSpec, RunView } from '@starling-grid/protocol'
import { auditChain } from '../src/audit.ts'

/** Times that a test need not wait out; the rules stay the same. */
export const QUICK = { admitMs: 300, rejoinMs: 6000, quietMs: 3000 }

/**
 * The same, for links that never open: others open within a second, and within a second try of PeerJS on a busy
 * machine.
 */
export const QUICK_LINKS = { ...QUICK, linkOpenMs: 5000 }

export function smallJob(
  options: Partial<Parameters<typeof demoJob>[0]> & { readonly stop: JobSpec['stop'] },
): JobSpec {
  // Tests state frames and ranks of the ring, so a busy machine must not change the exchange. 48 samples a step: quick
  // on two cores, and whole blocks for three members
  const small = { blockSamples: 8, batchBlocks: 6, evaluate: { everyEpochs: 1000 }, exchange: 'ring' } as const
  return { ...demoJob({ seed: 7, mode: 'ring', ...options }), ...small }
}

/** The same with half the arithmetic: for what is about members and jobs, whatever a step computes. */
export function lightJob(options: Parameters<typeof smallJob>[0]): JobSpec {
  return { ...smallJob(options), blockSamples: 4 }
}

/**
 * The same with a twentieth of the arithmetic: for what is about messages between members, whatever a step computes.
 * Where a test needs steps that last, PACED members make them so at no cost of a core.
 */
export function tinyJob(options: Parameters<typeof smallJob>[0]): JobSpec {
  return { ...smallJob(options), model: mlp({ input: [1, 28, 28], hidden: [32], classes: 10 }) }
}

/** A member whose frames take 60 ms one way: a step lasts as long as on a slow machine. */
export const PACED = {
  executor: 'reference',
  entry: fileURLToPath(new URL('../src/faulty-volunteer.ts', import.meta.url)),
  env: { STARLING_FAULT: 'long-lines:60' },
} as const

/** A member that rests so long for each sample, alone and with others: it takes time, and no core. */
export function slowMember(msPerSample: number): Parameters<Grid['addVolunteer']>[0] {
  return { ...PACED, env: { STARLING_FAULT: `slow-samples:${msPerSample}` } }
}

/** Waits for the end; nothing lost, nothing twice, loss lower than at the start, all replicas equal. */
export async function finishesWhole(grid: Grid, job: string, steps: number): Promise<RunView> {
  const run = await grid.watch.waitFor(
    'the end of the training',
    ({ run }) => run?.phase === 'finished' && run,
    300_000,
  )
  const records = await grid.records(job)
  assert.equal(records.length, steps)
  const audit = auditChain(records, new Set(records.flatMap((record) => record.blocks)).size)
  assert.equal(audit.duplicated, 0, 'a block is in the history twice')
  assert.deepEqual(
    records.map((record) => record.v),
    records.map((_, i) => i + 1),
    'versions follow each other',
  )
  const losses = grid.watch.steps.map((step) => step.loss)
  assert.ok((losses.at(-1) ?? 9) < (losses[0] ?? 0), `the loss went from ${losses[0]} to ${losses.at(-1)}`)
  assert.ok(
    run.checkpoint !== null && run.checkpoint.v === steps,
    `the last version is durable, got ${run.checkpoint?.v}`,
  )
  assert.equal(run.checkpoint.agreeing, run.checkpoint.members, 'every replica is bit-identical')
  return run
}
