// A headless volunteer with a fault built in, for tests and chaos: faulty-volunteer.ts URL --name NAME, and
// STARLING_FAULT=KIND:NUMBER. All else is the production volunteer; only what it sends to others has the fault.
import { createNodeHost, openWebRtc } from '@starling-grid/client-node/host'
import { createVolunteer, type VolunteerHost } from '@starling-grid/volunteer'
import { slowNetwork } from '@starling-grid/volunteer/testing'
import { FRAME_FAULTS, withFrameFault } from './frame-faults.ts'
import { Partition, type PartitionOrder, withoutIce, withoutLinks } from './link-faults.ts'
import { MESSAGE_FAULTS, withMessageFault } from './message-faults.ts'
import { withOldGradients } from './old-gradients.ts'
import { isSlowness, SLOWNESS, withSlowBlocks } from './slow-blocks.ts'

const OTHER_KINDS = ['no-ice', 'no-links', 'partition', 'long-lines', 'slow-lines', 'old-gradients']
const KINDS = [...OTHER_KINDS, ...SLOWNESS, ...FRAME_FAULTS, ...MESSAGE_FAULTS].map((kind) => `${kind}:NUMBER`)
/** A home's line to others: 20 Mbit/s. */
const LINE_BYTES_PER_MS = 2500

const [coordinatorUrl = '', , name = 'faulty'] = process.argv.slice(2)
const [kind = '', number = '1'] = (process.env['STARLING_FAULT'] ?? '').split(':')

function withFault(host: VolunteerHost): VolunteerHost {
  if (kind === 'no-ice') return withoutIce(host, openWebRtc, Number(number))
  if (kind === 'no-links') return withoutLinks(host, openWebRtc)
  if (kind === 'partition') return partitioned(host)
  if (kind === 'long-lines') return overLines(host, LINE_BYTES_PER_MS, Number(number))
  if (kind === 'slow-lines') return overLines(host, Number(number), 1)
  if (kind === 'old-gradients') return withOldGradients(host)
  if (isSlowness(kind)) return withSlowBlocks(host, kind, Number(number))
  const faulty = withFrameFault(host, kind, Number(number)) ?? withMessageFault(host, kind, Number(number))
  if (faulty === undefined)
    throw new Error(`expected STARLING_FAULT to be one of ${KINDS.join(', ')}, got "${kind}:${number}"; name one`)
  return faulty
}

/** As from one continent to another, or from a village: what it sends arrives so many ms later, after what it sent. */
function overLines(host: VolunteerHost, bytesPerMs: number, latencyMs: number): VolunteerHost {
  return {
    ...host,
    openPeerNetwork: async (access) => slowNetwork(await host.openPeerNetwork(access), bytesPerMs, latencyMs),
  }
}

/** The test cuts and heals links while the volunteer runs. */
function partitioned(host: VolunteerHost): VolunteerHost {
  const partition = new Partition()
  process.on('message', (order: PartitionOrder) => partition.obey(order))
  return partition.in(host)
}

const host = withFault(
  createNodeHost({ coordinatorUrl, executor: process.argv.includes('reference') ? 'reference' : 'webgpu' }),
)
const volunteer = createVolunteer(host, { name, onStatus: () => undefined })
process.on('SIGTERM', () => void volunteer.stop())
process.once('disconnect', () => process.exit(1)) // the test is gone
process.channel?.unref()
await volunteer.run().catch((error: unknown) => console.error(error))
process.exit(0)
