// Links through the coordinator (R18) in a simulated grid: production's relay between two sockets in memory.
import { EventEmitter } from 'node:events'
import { RelayEnd, Relays } from '@starling-grid/coordinator/shell'
import { GridError, type MemberId, parse, MemberIdSchema } from '@starling-grid/protocol'
import type { RelaySocket } from '@starling-grid/volunteer'
import type { CoordinatorProcess } from './coordinator-process.ts'
import type { VirtualProcess } from './virtual-time.ts'
import { Lane, type LineParts } from './wires.ts'

/** messages of an end in a second: no simulated member comes near */
const MESSAGES_PER_SECOND = 10_000

export interface RelayWireParts extends LineParts {
  readonly member: VirtualProcess
  readonly coordinator: VirtualProcess
}

/** The socket of a relayed link: the volunteer's end, and the one that the relay reads. */
export class RelayWire extends EventEmitter {
  readonly near: RelaySocket
  readonly #up: Lane
  readonly #down: Lane
  readonly bufferedAmount = 0
  #isOpen = true

  constructor({ member, coordinator, ...line }: RelayWireParts) {
    super()
    this.#up = new Lane(coordinator, line)
    this.#down = new Lane(member, line)
    this.near = {
      bufferedBytes: 0,
      onMessage: undefined,
      onClose: undefined,
      send: (frame) => {
        const copy = Buffer.from(frame)
        if (this.#isOpen) this.#up.carry(() => this.emit('message', copy, true))
      },
      close: () => this.#end(() => this.#up.carry(() => this.emit('close', 1000, Buffer.from('')))),
    }
  }

  /** of the relay */
  send(data: Uint8Array, _: unknown, done: () => void): void {
    const copy = data.slice()
    if (this.#isOpen) this.#down.carry(() => this.near.onMessage?.(copy))
    done()
  }

  close(code: number, reason: string): void {
    this.#end(() => this.#down.carry(() => this.near.onClose?.(`code ${code}: ${reason}`)))
  }

  pause(): void {}

  resume(): void {}

  /** Both ends learn of it. */
  break(): void {
    this.#end(() => {
      this.#up.carry(() => this.emit('close', 1006, Buffer.from('')))
      this.#down.carry(() => this.near.onClose?.('the connection broke'))
    })
  }

  #end(tell: () => void): void {
    if (!this.#isOpen) return
    this.#isOpen = false
    tell()
  }
}

/** Of one coordinator process. */
export class RelayDesk {
  readonly relays: Relays
  readonly #coordinator: CoordinatorProcess
  readonly #wires = new Set<RelayWire>()

  constructor(coordinator: CoordinatorProcess, linkOpenMs: number) {
    this.#coordinator = coordinator
    const { clock } = coordinator
    this.relays = new Relays(
      {
        clock,
        linkOpenMs,
        authenticate: (id, token) => coordinator.authenticate(token) === id,
        mayRelay: (a, b) => coordinator.runs.relaying(a, b) !== undefined,
        onRefusal: (code, what) => coordinator.refused(code, what),
        onForwarded: (bytes, from, to) => coordinator.runs.relaying(from, to)?.countRelayed(bytes),
      },
      clock,
    )
    clock.every(1000, () => this.relays.check())
  }

  /** @throws GridError 'coordinator-lost' as a socket that is refused */
  admit(path: string, token: string, wire: RelayWire): void {
    const query = new URL(path, 'http://grid.test').searchParams
    const [self, peer] = [query.get('id'), query.get('peer')].map((id) => parse(MemberIdSchema, id, 'id')) as [
      MemberId,
      MemberId,
    ]
    const isKnown = this.#coordinator.authenticate(token) === self
    if (!isKnown || this.#coordinator.runs.relaying(self, peer) === undefined)
      throw new GridError('coordinator-lost', 'the coordinator relays no such link')
    this.#wires.add(wire)
    this.relays.admit(
      new RelayEnd(self, peer, {
        socket: wire as unknown as RelayEnd['socket'],
        address: `192.0.2.${self.length}`,
        messagesPerSecond: MESSAGES_PER_SECOND,
        clock: this.#coordinator.clock,
      }),
    )
  }

  /** The process is gone. */
  break(): void {
    for (const wire of this.#wires) wire.break()
  }
}
