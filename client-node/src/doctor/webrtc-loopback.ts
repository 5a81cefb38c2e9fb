// Can two WebRTC peers on this machine reach each other? Both live in this process, so nothing but the
// network stack and its filters stands between them.
import type { PeerConnection } from 'node-datachannel'
import { describeError } from '@starling-grid/protocol'
import { type CheckResult, failure, ok } from './check.ts'

/** On an idle machine a channel opens in 0.1 s. */
const LIMIT_MS = 4000
const CURE = 'Allow UDP between local addresses in the firewall. Without it gradients travel through the coordinator, which is slower.'

export async function checkWebRtc(): Promise<CheckResult> {
  try {
    const started = performance.now()
    await openChannelOnce()
    return ok('webrtc', `a data channel opened in ${Math.round(performance.now() - started)} ms`)
  } catch (error) {
    return failure('webrtc', describeError(error), CURE)
  }
}

async function openChannelOnce(): Promise<void> {
  const rtc = await import('node-datachannel')
  const here = new rtc.PeerConnection('here', { iceServers: [] })
  const there = new rtc.PeerConnection('there', { iceServers: [] })
  try {
    await new Promise<void>((resolve, reject) => {
      setTimeout(() => reject(new Error(`no data channel opened within ${LIMIT_MS / 1000} s`)), LIMIT_MS).unref()
      introduce(here, there, reject)
      introduce(there, here, reject)
      here.createDataChannel('loopback').onOpen(guarded(resolve, reject))
    })
  } finally {
    here.close()
    there.close()
    rtc.cleanup()
  }
}

function introduce(from: PeerConnection, to: PeerConnection, fail: (error: unknown) => void): void {
  from.onLocalDescription(guarded((sdp, type) => to.setRemoteDescription(sdp, type), fail))
  from.onLocalCandidate(guarded((candidate, mid) => to.addRemoteCandidate(candidate, mid), fail))
}

/** An exception that leaves a callback of node-datachannel aborts the process. */
function guarded<T extends unknown[]>(callback: (...args: T) => void, fail: (error: unknown) => void): (...args: T) => void {
  return (...args) => {
    try {
      callback(...args)
    } catch (error) {
      fail(error)
    }
  }
}
