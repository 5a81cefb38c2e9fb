// Messages in a few words, for the trace of a seed that failed.
import type { ToCoordinator, ToVolunteer } from '@starling-grid/protocol'

export function describe(message: ToCoordinator | ToVolunteer): string {
  const ballot = 'generation' in message ? ` g${message.generation} (owner ${message.fence})` : ''
  return `${message.type.toUpperCase()}${ballot}${detail(message)}`
}

function detail(message: ToCoordinator | ToVolunteer): string {
  switch (message.type) {
    case 'state':
      return message.claim === null
        ? ' holds nothing'
        : ` holds version ${message.claim.base.v} + ${message.claim.records.length}`
    case 'form':
      return (
        ` of ${message.members.join(', ')} at version ${message.target.v} (${message.target.id.slice(0, 6)}), ` +
        `sources ${message.sources.join(', ')}${message.coordinatorHolds ? ' and the coordinator' : ''}`
      )
    case 'confirm':
      return ` version ${message.version.v}`
    case 'start':
      return ` after version ${message.after.v}: ${planned(message.plan)}`
    case 'plan':
      return ` ${planned(message.steps)}`
    case 'held':
      return ` version ${message.record.v}`
    case 'ack':
      return ` version ${message.committed.v}`
    case 'abort':
      return ` step ${message.step} (${message.message})`
    case 'checkpoint-at':
      return ` version ${message.v} by ${message.uploader}`
    case 'grant':
      return (
        ` ${message.leases.map(({ block, leaseEpoch }) => `${block}/${leaseEpoch}`).join(' ')} at version ` +
        `${message.base.v}, mode epoch ${message.modeEpoch}`
      )
    case 'async':
    case 'lease-request':
      return ` mode epoch ${message.modeEpoch}`
    case 'wait':
      return ` ${message.reason}`
    case 'refused':
      return ` ${message.code}: ${message.message}`
    default:
      return ''
  }
}

function planned(steps: readonly { readonly step: number; readonly blocks: readonly string[] }[]): string {
  return steps.map(({ step, blocks }) => `${step} = [${blocks.join(' ')}]`).join(', ')
}
