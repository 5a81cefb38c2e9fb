import type { MemberId } from '@starling-grid/protocol'
import { type Communicator, networkMesh, openCommunicator, type SignallingAccess } from '@starling-grid/volunteer'
// One rank of a group in a tab: the test calls `openGroup`, `runCase` and `closeGroup` there.
import { communicatorCases } from '@starling-grid/volunteer/testing'
import { openPeerNetwork } from '../../client-web/src/rtc-link.ts'

declare global {
  interface Window {
    openGroup(access: SignallingAccess, members: readonly MemberId[]): Promise<void>
    runCase(name: string): Promise<void>
    closeGroup(): Promise<void>
  }
}

let group: Communicator | undefined

window.openGroup = async (access, members) => {
  group = openCommunicator(networkMesh(await openPeerNetwork(access), members, members.indexOf(access.self)))
}

window.runCase = async (name) => {
  const found = communicatorCases.find((one) => one.name === name)
  if (group === undefined || found === undefined) throw new Error(`internal: no group, or no case "${name}"`)
  await found.run(group)
}

window.closeGroup = async () => group?.close()
