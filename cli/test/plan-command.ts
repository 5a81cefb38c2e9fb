// Runs `starling plan`, on job files of a folder of its own.
import assert from 'node:assert/strict'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after } from 'node:test'
import { fileURLToPath } from 'node:url'
import { CommandProcess, type Ended } from './command-process.ts'

export const ROOT = fileURLToPath(new URL('../..', import.meta.url))

export const folder = await mkdtemp(join(tmpdir(), 'starling-plan-'))
after(() => rm(folder, { recursive: true }))

const commands = new CommandProcess()
after(() => commands.end())

export function plan(...args: readonly string[]): Promise<Ended> {
  return commands.run(['plan', ...args], ROOT)
}

interface PlannedJson {
  readonly members: number
  readonly batchSamples: number
  readonly learningRate: number
  readonly seconds: number
  readonly encoding: string
  readonly steps: number
  readonly volunteers: number
  readonly bound: string
}

export interface PlanJson {
  readonly secondsToTarget: number
  readonly bytesPerMember: { readonly up: number; readonly down: number }
  readonly groups: number
  readonly innerSteps: number
  readonly encoding: string
  readonly samples: number
  readonly own: PlannedJson
  readonly best: PlannedJson
  readonly tried: readonly unknown[]
  readonly unfit: readonly object[]
}

/** A linear model on the digits: 2 blocks of 16 samples a step, or of each member. */
export async function jobFile(name: string, ...lines: readonly string[]): Promise<string> {
  const file = join(folder, `${name}.yaml`)
  const layers = '[{ type: flatten }, { type: linear, name: fc, out: 10 }]'
  const job = [
    'name: Linear digits',
    'owner: tests',
    'purpose: To be planned.',
    `model: { name: linear, input: [1, 28, 28], layers: ${layers}, loss: cross_entropy }`,
    'dataset: { source: digits }',
    'optimizer: { type: sgd, lr: 0.05 }',
    'blockSamples: 16',
    'batchBlocks: 2',
    'mode: ring',
    'seed: 1',
    ...lines,
  ]
  await writeFile(file, `${job.join('\n')}\n`)
  return file
}

export async function planOf(
  file: string,
  crowd: string,
): Promise<{ readonly json: PlanJson; readonly stdout: string }> {
  const { status, stdout, stderr } = await plan(file, '--with', crowd, '--json')
  assert.equal(status, 0, stderr)
  return { json: JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as PlanJson, stdout }
}
