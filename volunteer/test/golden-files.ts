// What PyTorch computed, and the reference that is compared with it.
import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { REFERENCE_ADAPTER } from '../src/cpu/executor.ts'
import { ReferenceRunner } from '../src/cpu/runner.ts'
import { type GoldenBackend, readGoldenCase, runGoldenCase } from '../src/golden/index.ts'

export const FOLDER = fileURLToPath(new URL('../../../shared/', import.meta.url))
export const BACKEND: GoldenBackend = {
  adapter: REFERENCE_ADAPTER,
  createRunner: async (graph, capacity) => new ReferenceRunner(graph, capacity),
}

export const files = existsSync(FOLDER)
  ? ['golden/ops', 'golden/trajectories', 'golden-language'].flatMap((folder) =>
      readdirSync(FOLDER + folder).map((name) => `${folder}/${name}`),
    )
  : []

/** Trainings that take ten seconds each. */
export const LONG = ['lenet_adam', 'gpt_adamw', 'resnet_adam'].map((name) => `golden/trajectories/${name}.safetensors`)

export function agreesWith(name: string): void {
  test(`the reference agrees with ${name}`, async () => {
    const result = await runGoldenCase(readGoldenCase(readFileSync(FOLDER + name)), BACKEND)
    assert.equal(result.verdict, 'passed', JSON.stringify(result))
  })
}
