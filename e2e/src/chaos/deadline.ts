// How long a scenario may take as a whole: a hang says what hangs.
import type { Watch } from '@starling-grid/cli'

/** What `work` resolves with. @throws Error what was still waited for after `ms` */
export async function within<T>(
  ms: number,
  watch: Pick<Watch, 'waitingFor' | 'describe'>,
  work: Promise<T>,
): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined
  const late = new Promise<never>((_, reject) => {
    const fail = (): void =>
      reject(
        new Error(
          `expected the end within ${ms / 60_000} min, still waiting for ${watch.waitingFor}; ` +
            `the run is ${watch.describe()}; on a slow machine allow more with --minutes`,
        ),
      )
    timer = setTimeout(fail, ms)
  })
  try {
    return await Promise.race([work, late])
  } finally {
    clearTimeout(timer)
  }
}
