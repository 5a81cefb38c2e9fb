// `?executor=webgpu` in the address of a page: tests and measurements say what computes.
import type { TabExecutor } from './worker-messages.ts'

const EXECUTORS: readonly TabExecutor[] = ['webgpu', 'wasm']

export function askedExecutor(search: string): TabExecutor | undefined {
  const asked = new URLSearchParams(search).get('executor')
  return EXECUTORS.find((kind) => kind === asked)
}
