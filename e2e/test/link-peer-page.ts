// A link peer in a tab: the test calls `linkPeer.…` and offers `callFarEnd` there.
import { openPeerNetwork } from '../../client-web/src/rtc-link.ts'
import { linkPeer, type LinkPeerHost } from './link-peer.ts'

declare global {
  interface Window {
    linkPeer: ReturnType<typeof linkPeer>
    callFarEnd: LinkPeerHost['callFarEnd']
  }
}

window.linkPeer = linkPeer({ openPeerNetwork, callFarEnd: (command, args) => window.callFarEnd(command, args) })
