// An end of a measured link as a tab.
import { openPeerNetwork } from '../../../client-web/src/rtc-link.ts'
import { lineEnd } from '../lines/end.ts'

Object.assign(globalThis, { page: lineEnd(openPeerNetwork) })
