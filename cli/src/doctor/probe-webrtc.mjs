// Run as a short process of its own: opens a data channel between two WebRTC peers, both in this process. Only the
// network stack and its filters stand between them. Prints how many milliseconds it took, or fails with the reason.
// node-datachannel keeps a process alive for long after its peers are closed, and its cleanup() aborts now and then.
import { PeerConnection } from 'node-datachannel'

/** On an idle machine a channel opens in 0.1 s; on a busy one DTLS repeats what was lost after 1, 3 and 7 s. */
const LIMIT_MS = 10_000

const started = performance.now()
const here = new PeerConnection('here', { iceServers: [] })
const there = new PeerConnection('there', { iceServers: [] })

setTimeout(() => fail(new Error(`no data channel opened within ${LIMIT_MS / 1000} s`)), LIMIT_MS)
introduce(here, there)
introduce(there, here)
const channel = here.createDataChannel('loopback')
channel.onOpen(() => {
  process.stdout.write(`${Math.round(performance.now() - started)}\n`)
  process.exit(0)
})
// A name in a module keeps nothing once the module has run, and a channel that is collected never opens.
globalThis.kept = [here, there, channel]

function introduce(from, to) {
  from.onLocalDescription(guarded((sdp, type) => to.setRemoteDescription(sdp, type)))
  from.onLocalCandidate(guarded((candidate, mid) => to.addRemoteCandidate(candidate, mid)))
}

/** An exception that leaves a callback of node-datachannel aborts the process. */
function guarded(callback) {
  return (...args) => {
    try {
      callback(...args)
    } catch (error) {
      fail(error)
    }
  }
}

function fail(error) {
  console.error(error.message)
  process.exit(1)
}
