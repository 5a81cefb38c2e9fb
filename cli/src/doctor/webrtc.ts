// Can two WebRTC peers on this machine reach each other?
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { type CheckResult, failure, ok } from './check.ts'

const PROBE = fileURLToPath(new URL('./probe-webrtc.mjs', import.meta.url))
/** The probe gives up earlier by itself; this is for one that hangs. */
const LIMIT_MS = 15_000
const CURE =
  'Allow UDP between local addresses in the firewall. Without it gradients travel through the coordinator, ' +
  'which is slower.'

export async function checkWebRtc(): Promise<CheckResult> {
  try {
    const { stdout } = await promisify(execFile)(process.execPath, [PROBE], { timeout: LIMIT_MS })
    return ok('webrtc', `a data channel opened in ${stdout.trim()} ms`)
  } catch (error) {
    return failure('webrtc', reason(error), CURE)
  }
}

function reason(error: unknown): string {
  const said = error instanceof Error && 'stderr' in error ? String(error.stderr).trim().split('\n').at(-1) : ''
  return said || 'the attempt crashed'
}
