// Who takes part, who left and why. Names are text nodes.
import { type AdapterDescription, type DepartureView, linksInWords, type MemberView } from '@starling-grid/protocol'
import { ringNodes } from '../flock/ring-layout.ts'
import { bytes, clockTime, plural, rate } from '../format.ts'

/** `count`: of all; the coordinator names some of very many. */
export function Members(props: { readonly members: readonly MemberView[]; readonly count: number }) {
  const more = props.count - props.members.length
  return (
    <section class="members" aria-label="Members">
      <h2>{plural(props.count, 'member')}</h2>
      {props.members.length === 0 ? (
        <p class="soft">No members yet. Open the contribute page, or run: npm run volunteer -- {location.origin}</p>
      ) : (
        <MemberTable members={props.members} />
      )}
      {more > 0 && <p class="soft">and {more.toLocaleString('en')} more</p>}
    </section>
  )
}

function MemberTable(props: { readonly members: readonly MemberView[] }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Members, table">
      <table>
        <thead>
          <tr>
            <th scope="col">Name</th>
            <th scope="col">Rank</th>
            <th scope="col">Activity</th>
            <th scope="col" class="right">
              Samples/s
            </th>
            <th scope="col">Adapter</th>
            <th scope="col" class="right">
              Sent
            </th>
            <th scope="col" class="right">
              Received
            </th>
          </tr>
        </thead>
        <tbody>
          {ringNodes(props.members).map(({ id, member }) => (
            <tr key={id}>
              <th scope="row">{member.name}</th>
              <td>{rankInWords(member, props.members)}</td>
              <td>{member.state === 'training' ? member.activity || 'training' : member.state}</td>
              <td class="right">{rate(member.samplesPerSecond)}</td>
              <td class="adapter" title={adapterInWords(member.adapter, member.client)}>
                {adapterInWords(member.adapter, member.client)}
              </td>
              <td class="right">{bytes(member.bytesSent)}</td>
              <td class="right">{bytes(member.bytesReceived)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}

function rankInWords(member: MemberView, members: readonly MemberView[]): string {
  const { rank } = member
  if (rank === null) return 'none'
  const links = linksInWords(member, members)
  return links === '' ? String(rank + 1) : `${rank + 1}, ${links}`
}

function adapterInWords(adapter: AdapterDescription | null, client: MemberView['client']): string {
  const where = client === 'tab' ? 'tab' : 'Node'
  if (adapter === null) return `${where}, adapter not known yet`
  const kind = [...(adapter.software ? ['software'] : []), ...(adapter.f16 === true ? ['f16'] : [])].join(', ')
  return `${where}, ${adapter.name}${kind === '' ? '' : ` (${kind})`}`
}

export function Departed(props: { readonly departed: readonly DepartureView[] }) {
  if (props.departed.length === 0) return null
  return (
    <section class="departed" aria-label="Departed">
      <h2>{props.departed.length} left</h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="Departed members, table">
        <table>
          <thead>
            <tr>
              <th scope="col">Name</th>
              <th scope="col">Time</th>
              <th scope="col">Reason</th>
              <th scope="col">Expected</th>
            </tr>
          </thead>
          <tbody>
            {props.departed
              .toSorted((a, b) => b.at - a.at)
              .map((gone) => (
                <tr key={gone.id}>
                  <th scope="row">{gone.name}</th>
                  <td>{clockTime(gone.at)}</td>
                  <td>{gone.reason}</td>
                  <td class={gone.expected ? '' : 'unexpected'}>{gone.expected ? 'yes' : 'no'}</td>
                </tr>
              ))}
          </tbody>
        </table>
      </div>
    </section>
  )
}
