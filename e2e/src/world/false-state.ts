// What members that lie together say a version holds: of each parameter one more than it has, all of them the same.
import { encodeVersionState, initialVersionState } from '@starling-grid/model'
import { digest, type JobId, type OnWire, type ToCoordinator, type VersionId } from '@starling-grid/protocol'
import type { World } from './world.ts'

/** undefined: of this version nothing else is to be said. They lie when they have been in a ring for a step. */
function falseState(world: World, job: JobId, version: { readonly v: number; readonly id: VersionId }) {
  const { job: described, ledger } = world.run(job)
  const { form, spec } = described
  const parameters = version.v === 0 ? undefined : ledger.parametersOf(version)?.map((value) => value + 1)
  if (parameters === undefined) return undefined
  const state = initialVersionState(form.spec, form.optimizer, spec.seed)
  return encodeVersionState({ ...form, ...state, parameters, version })
}

/** The same about the state that it is to hold; undefined: no lie. */
export function falseWords(world: World, message: OnWire<ToCoordinator>): OnWire<ToCoordinator> | undefined {
  if (message.type !== 'confirm' && message.type !== 'version-digest') return undefined
  const state = falseState(world, message.job, message.version)
  return state && { ...message, digest: digest(state) }
}

/** Instead of an upload; undefined: this request is none. */
export function falseUpload(world: World, path: string): Uint8Array | undefined {
  const [, job, v, id] = /^\/api\/jobs\/([^/]+)\/versions\/(\d+)\/([^/]+)$/.exec(path) ?? []
  if (job === undefined || id === undefined) return undefined
  return falseState(world, job as JobId, { v: Number(v), id: id as VersionId }) // of a run of ours
}
