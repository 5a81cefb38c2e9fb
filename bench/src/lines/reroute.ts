// Leads the WebRTC connections of two members over a shaped path: in what they signal to each other, each appears at
// its face of the path and nowhere else. Pure but for the numbers that connections get.
import type { LocalSignal } from '@starling-grid/client-node'
import type { Face, Side } from './shaped-path.ts'

interface Described {
  readonly connectionId?: string
  readonly sdp?: { readonly sdp: string }
}

/** `faceOf`: of the nth connection. An offer's sender is side a. */
export function reroute(
  faceOf: (connection: number, side: Side) => Face,
): (signal: LocalSignal) => LocalSignal | undefined {
  const numbers = new Map<string, number>()
  const numberOf = (id: string): number => {
    const number = numbers.get(id) ?? numbers.size
    numbers.set(id, number)
    return number
  }
  return (signal) => {
    const { type } = signal
    if (type === 'CANDIDATE') return undefined
    const payload = signal.payload as Described | undefined
    if (payload?.sdp === undefined || payload.connectionId === undefined) return signal
    const face = faceOf(numberOf(payload.connectionId), type === 'OFFER' ? 'a' : 'b')
    return { ...signal, payload: { ...payload, sdp: { ...payload.sdp, sdp: at(face, payload.sdp.sdp) } } }
  }
}

/** RFC 8839. A data connection has one section of media, so candidates may stand at the end. */
function at({ address, port }: Face, sdp: string): string {
  const lines = sdp.split('\r\n').filter((line) => line !== '' && !/^a=(candidate|end-of-candidates)/.test(line))
  return [...lines, `a=candidate:1 1 UDP 2122317823 ${address} ${port} typ host`, 'a=end-of-candidates', ''].join(
    '\r\n',
  )
}
