// The seam between volunteers: one interface, implemented in memory, over WebRTC in browsers and in Node, over TCP
// between Node processes, and through the coordinator. Every implementation runs volunteer/testing/peer-link-suite.ts.
import type { LinkIdentity, MemberId } from '@starling-grid/protocol'

/**
 * What carries the frames of a link: a data channel, TCP with TLS between Node processes, the coordinator (R18), or the
 * memory of one process.
 */
export type LinkCarrier = 'webrtc' | 'tcp' | 'relay' | 'memory'

/** One ordered, reliable pipe of frames to another volunteer. */
export interface PeerLink {
  readonly peer: MemberId
  readonly carrier: LinkCarrier
  /**
   * Resolves when the frame is accepted for sending; waits while more than HIGH_WATER_BYTES are queued.
   * Frames leave in the order of the calls. Until it resolves the bytes must stay as they are. Then the link has copied
   * what it needs, and the caller may use the memory again.
   * @throws GridError 'link-lost' once the link is closed or broken, 'message-too-large' above MAX_LINK_FRAME_BYTES
   */
  send(frame: Uint8Array<ArrayBuffer>): Promise<void>
  /** bytes accepted by `send` and not yet handed to the network */
  readonly bufferedBytes: number
  /**
   * Set once by the owner, as soon as it got the link: called per frame, in the order they were sent. Frames that came
   * earlier are kept, up to a bound that closes the link, and delivered on setting it. Throwing closes the link. The
   * bytes belong to the owner: the link uses their memory no more.
   */
  onFrame: ((frame: Uint8Array) => void) | undefined
  /**
   * Called once, soon after the link closed for whatever reason (also by close()), or after it is set if that comes
   * later.
   */
  onClose: ((reason: string) => void) | undefined
  /** Frames that `send` accepted just before may be lost; sends that still wait are rejected. */
  close(reason: string): void
}

/** How a volunteer reaches others: the platform's WebRTC behind PeerJS, or memory in tests. */
export interface PeerNetwork {
  /**
   * A link to `peer`. Time-boxed and retried inside the time that the coordinator gives it.
   * @throws GridError 'link-timeout' when it could not be opened, or the signal's reason
   */
  dial(peer: MemberId, signal: AbortSignal): Promise<PeerLink>
  /**
   * Members whose offers are answered from here on: those of the present generation, and newcomers that the coordinator
   * announced. Nothing is sent to others, no candidate either. Before the first call: none.
   */
  expect(members: readonly MemberId[]): void
  /** Called for each link that another member opened to us. Links are refused while this is undefined. */
  onLink: ((link: PeerLink) => void) | undefined
  /** After the coordinator came back: signal through it again, with the new session. Open links stay. */
  reconnect(access: SignallingAccess): void
  stop(): void
}

/** What the coordinator hands out at join so that PeerJS can signal through it. */
export interface SignallingAccess {
  /** http(s) URL of the coordinator, without path */
  readonly url: string
  /** WebSocket path of the PeerJS protocol, for example "/signalling" */
  readonly path: string
  readonly self: MemberId
  /** the session's token: authenticates the PeerJS socket */
  readonly token: string
  readonly iceServers: readonly { readonly urls: string; readonly username?: string; readonly credential?: string }[]
  /**
   * what this member proves to others, and asks of them; absent where ranks have no keys. Never sent to the coordinator
   */
  readonly identity?: LinkIdentity | undefined
  /** for a link to open; LINK_OPEN_MS where it is not said */
  readonly linkOpenMs?: number | undefined
}
