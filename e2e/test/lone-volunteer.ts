// A real volunteer in the process of a test, without links to others and with a changed host.
import { createNodeHost } from '@starling-grid/client-node/host'
import { GridError } from '@starling-grid/protocol'
import { createVolunteer, type PeerNetwork, type VolunteerHost, type VolunteerStatus } from '@starling-grid/volunteer'

/** No ring is formed here. */
const NO_LINKS: PeerNetwork = {
  onLink: undefined,
  dial: () => Promise.reject(new GridError('link-timeout', 'there are no links here')),
  expect: () => undefined,
  reconnect: () => undefined,
  stop: () => undefined,
}

export interface Life {
  /** resolves with the error that ended it, or undefined when it was stopped */
  readonly ended: Promise<unknown>
  readonly statuses: VolunteerStatus[]
  stop(): Promise<void>
}

export function live(coordinatorUrl: string, change: (host: VolunteerHost) => Partial<VolunteerHost>): Life {
  const host = { ...createNodeHost({ coordinatorUrl, executor: 'reference' }), openPeerNetwork: async () => NO_LINKS }
  const statuses: VolunteerStatus[] = []
  const volunteer = createVolunteer(
    { ...host, ...change(host) },
    { name: 'alone', onStatus: (status) => void statuses.push(status) },
  )
  return {
    ended: volunteer.run().then(
      () => undefined,
      (error: unknown) => error,
    ),
    statuses,
    stop: () => volunteer.stop(),
  }
}
