// Members in their ring, in its order; in async mode a star around the coordinator. Names are text nodes.
import type { MemberId, MemberView, RunView } from '@starling-grid/protocol'
import { count, plural, rate } from '../format.ts'
import { FlockCanvas } from './flock-canvas.tsx'
import {
  flightPattern,
  type FlightPattern,
  HALF_HEIGHT,
  HALF_WIDTH,
  relayedLinks,
  type RingLink,
  RING_RADIUS,
  ringNodes,
  type RingNode,
} from './ring-layout.ts'

/** Above this many members names would overlap; the table has them all. */
const MOST_NAMES = 14
const LONGEST_NAME = 13
const VIEW_BOX = `${-HALF_WIDTH} ${-HALF_HEIGHT} ${2 * HALF_WIDTH} ${2 * HALF_HEIGHT}`

export interface RingPictureProps {
  readonly run: RunView | null
  /** marked as "you" */
  readonly self: MemberId | null
}

export function RingPicture(props: RingPictureProps) {
  const nodes = ringNodes(props.run?.members ?? [])
  const pattern = flightPattern(props.run)
  return (
    <figure class="ring-picture" role="img" aria-label={inWords(nodes, pattern)}>
      <FlockCanvas nodes={nodes} pattern={pattern} self={props.self} />
      <svg viewBox={VIEW_BOX} aria-hidden="true">
        {pattern === 'star' ? <Spokes nodes={nodes} /> : <Circle pattern={pattern} />}
        {relayedLinks(nodes).map((link) => (
          <Detour key={link.from.id} link={link} />
        ))}
        {nodes.length > 0 && <Centre run={props.run} pattern={pattern} />}
        {nodes.map((node) => (
          <Node key={node.id} node={node} self={node.id === props.self} named={nodes.length <= MOST_NAMES} />
        ))}
      </svg>
    </figure>
  )
}

function Circle(props: { readonly pattern: FlightPattern }) {
  return <circle r={RING_RADIUS} class={`orbit ${props.pattern}`} />
}

function Spokes(props: { readonly nodes: readonly RingNode[] }) {
  return (
    <>
      {props.nodes.map((node) => (
        <line key={node.id} x1={0} y1={0} x2={node.x} y2={node.y} class="spoke" />
      ))}
      <circle r={9} class="hub" />
    </>
  )
}

/** A link that goes through the coordinator: bent towards the centre, where the coordinator stands in a star. */
function Detour(props: { readonly link: RingLink }) {
  const { from, to } = props.link
  const bend = 0.2
  return (
    <path
      class="detour"
      d={`M ${from.x} ${from.y} Q ${bend * (from.x + to.x)} ${bend * (from.y + to.y)} ${to.x} ${to.y}`}
    />
  )
}

function Centre(props: { readonly run: RunView | null; readonly pattern: FlightPattern }) {
  const { run } = props
  if (run === null) return null
  if (props.pattern === 'star')
    return (
      <text y={19} class="centre-label">
        coordinator
      </text>
    )
  return (
    <>
      <text y={1} class="centre-number">
        {count(run.version.v)}
      </text>
      <text y={12} class="centre-label">
        version
      </text>
    </>
  )
}

function Node(props: { readonly node: RingNode; readonly self: boolean; readonly named: boolean }) {
  const { node, self } = props
  const classes = ['node', node.member.state, self ? 'self' : '', node.inRing ? 'in-ring' : ''].join(' ')
  return (
    <g class={classes}>
      <title>{tooltip(node.member)}</title>
      <circle cx={node.x} cy={node.y} r={self ? 4.2 : 3.4} />
      {(props.named || self) && <Name node={node} self={self} />}
    </g>
  )
}

/** Above or below the ring where it is flat, beside it elsewhere. */
function Name(props: { readonly node: RingNode; readonly self: boolean }) {
  const { angle, member } = props.node
  const [across, down] = [Math.cos(angle), Math.sin(angle)]
  const anchor = anchorOf(across)
  const x = (RING_RADIUS + 13) * across
  const y = (RING_RADIUS + 16) * down + (anchor === 'middle' && down < 0 ? -5 : 1)
  return (
    <text x={x} y={y} text-anchor={anchor}>
      <tspan class="name">{props.self ? 'you' : shortened(member.name)}</tspan>
      <tspan class="speed" x={x} dy="1.15em">
        {member.state === 'training' ? `${rate(member.samplesPerSecond)}/s` : member.state}
      </tspan>
    </text>
  )
}

function shortened(name: string): string {
  return name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME - 1)}…` : name
}

function tooltip(member: MemberView): string {
  const adapter =
    member.adapter === null
      ? 'adapter not known yet'
      : `${member.adapter.name}${member.adapter.software ? ' (software)' : ''}`
  return `${member.name}: ${member.activity}, ${rate(member.samplesPerSecond)} samples/s, ${adapter}`
}

function inWords(nodes: readonly RingNode[], pattern: FlightPattern): string {
  if (nodes.length === 0) return 'No members are in the ring yet.'
  const names = nodes.map((node) => node.member.name).join(', ')
  if (pattern === 'star') return `${plural(nodes.length, 'volunteer')} around the coordinator: ${names}.`
  const detours = relayedLinks(nodes).map(
    ({ from, to }) => ` The link from ${from.member.name} to ${to.member.name} goes through the coordinator.`,
  )
  return `${plural(nodes.length, 'volunteer')} in this order: ${names}.${detours.join('')}`
}

/** On which side of its point a label stands, by the cosine of the point's angle. */
function anchorOf(across: number): 'start' | 'middle' | 'end' {
  if (across > 0.35) return 'start'
  return across < -0.35 ? 'end' : 'middle'
}
