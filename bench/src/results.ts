// Results that are kept: one file for each suite, a list of runs, the newest last.
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { GridError } from '@starling-grid/protocol'
import type { Machine } from './machine.ts'
import type { BenchRow } from './row.ts'

const FOLDER = new URL('../results/', import.meta.url)

export interface KeptRun {
  /** day of the run, as 2026-01-31 */
  readonly date: string
  readonly machine: Machine
  readonly in: 'node' | 'browser'
  readonly rounds: number
  readonly rows: readonly BenchRow[]
}

export function keep(suite: string, run: KeptRun): void {
  mkdirSync(FOLDER, { recursive: true })
  writeFileSync(fileOf(suite), `${JSON.stringify([...keptRuns(suite), run], null, 1)}\n`)
}

export function keptRuns(suite: string): readonly KeptRun[] {
  if (!existsSync(fileOf(suite))) return []
  const runs: unknown = JSON.parse(readFileSync(fileOf(suite), 'utf8'))
  if (!Array.isArray(runs))
    throw new GridError(
      'dataset-unreadable',
      `expected a list of runs in bench/results/${suite}.json, got something else; mend or remove it`,
    )
  return runs as KeptRun[]
}

export function keptSuites(): string[] {
  if (!existsSync(FOLDER)) return []
  return readdirSync(FOLDER)
    .filter((file) => file.endsWith('.json'))
    .map((file) => file.slice(0, -'.json'.length))
    .sort()
}

function fileOf(suite: string): URL {
  return new URL(`${suite}.json`, FOLDER)
}
