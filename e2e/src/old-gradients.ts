// A volunteer that contributes the gradient of an older assignment. Its manifest names blocks, samples and loss of the
// present one, so that no member and no digest can tell.
import type { VolunteerHost } from '@starling-grid/volunteer'

export function withOldGradients(host: VolunteerHost): VolunteerHost {
  return {
    ...host,
    async createExecutor(...asked) {
      const executor = await host.createExecutor(...asked)
      let before: Float32Array | undefined
      return {
        ...executor,
        async gradient(batch, into) {
          const sums = await executor.gradient(batch, into)
          const now = into.slice()
          into.set(before ?? now)
          before = now
          return sums
        },
      }
    },
  }
}
