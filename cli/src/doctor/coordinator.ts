// Can this machine reach the coordinator, and do their clocks agree?
import { describeError, ROUTES } from '@starling-grid/protocol'
import { type CheckResult, failure, ok, warning } from './check.ts'

/** A wrong address is told within 5 s. */
const LIMIT_MS = 4000
/** Logs and charts of both sides are compared by eye. The protocol itself never compares clocks. */
const CLOCK_TOLERANCE_S = 30

export async function checkCoordinator(url: string): Promise<CheckResult[]> {
  const cure =
    'Compare the address with the one that the coordinator printed, ' +
    'and check that it runs and that no firewall is between.'
  const health = healthUrl(url)
  if (health === undefined)
    return [failure('coordinator', `"${url}" is no http or https address`, 'Write it like http://localhost:8080.')]
  try {
    const response = await fetch(health, { signal: AbortSignal.timeout(LIMIT_MS) })
    await response.body?.cancel()
    if (!response.ok)
      return [failure('coordinator', `${health} answered ${response.status}; a Starling coordinator answers 200`, cure)]
    return [ok('coordinator', `${health} answers`), checkClock(response.headers.get('date'))]
  } catch (error) {
    return [failure('coordinator', `${health} cannot be reached: ${reason(error)}`, cure)]
  }
}

function checkClock(date: string | null): CheckResult {
  const seconds = Math.round((Date.now() - Date.parse(date ?? '')) / 1000)
  if (Number.isNaN(seconds))
    return warning(
      'clock',
      'the coordinator does not send its time',
      'None is needed; a proxy may have removed the header.',
    )
  if (Math.abs(seconds) <= CLOCK_TOLERANCE_S) return ok('clock', 'agrees with the coordinator')
  return warning(
    'clock',
    `${Math.abs(seconds)} s ${seconds > 0 ? 'ahead of' : 'behind'} the coordinator`,
    'Set it by NTP, or logs of both sides will not match.',
  )
}

function healthUrl(url: string): string | undefined {
  const parsed = URL.canParse(url) ? new URL(url) : undefined
  return parsed && /^https?:$/.test(parsed.protocol) ? new URL(ROUTES.healthz, parsed).href : undefined
}

/** fetch hides the cause behind "fetch failed". */
function reason(error: unknown): string {
  if (error instanceof Error && error.name === 'TimeoutError') return `no answer within ${LIMIT_MS / 1000} s`
  return describeError(error instanceof Error && error.cause instanceof Error ? error.cause : error)
}
