// Handshakes under way at the https door: bounded for each address, at a cost that does not grow with their number.
import assert from 'node:assert/strict'
import { EventEmitter } from 'node:events'
import type { Socket } from 'node:net'
import { test } from 'node:test'
import type { Server } from 'node:tls'
import { boundHandshakes, HANDSHAKES_PER_ADDRESS } from '../src/net/tls-door.ts'

/** What the door sees of a connection. */
class Peer extends EventEmitter {
  readonly remoteAddress: string
  readonly remotePort: number
  destroyed = false

  constructor(remoteAddress: string, remotePort: number) {
    super()
    this.remoteAddress = remoteAddress
    this.remotePort = remotePort
  }

  destroy(): void {
    this.destroyed = true
    this.emit('close')
  }
}

class Door {
  readonly #server = new EventEmitter()

  constructor() {
    boundHandshakes(this.#server as unknown as Server)
  }

  connect(address: string, port: number): Peer {
    const peer = new Peer(address, port)
    this.#server.emit('connection', peer as unknown as Socket)
    return peer
  }

  /** The handshake is over: the server gives another object for the same peer. */
  secure({ remoteAddress, remotePort }: Peer): void {
    this.#server.emit('secureConnection', new Peer(remoteAddress, remotePort))
  }
}

test('threat 22: an address has so many handshakes under way and no more, until one is over or gone', () => {
  const door = new Door()
  const first = Array.from({ length: HANDSHAKES_PER_ADDRESS }, (_, port) => door.connect('192.0.2.1', port))
  const newcomer = (port: number): boolean => !door.connect('192.0.2.1', port).destroyed
  assert.ok(first.every(({ destroyed }) => !destroyed))
  assert.equal(newcomer(1000), false)
  assert.equal(door.connect('192.0.2.2', 1).destroyed, false, 'another address has its own')
  door.secure(first[0] ?? assert.fail())
  first[0]?.destroy()
  assert.deepEqual([newcomer(1001), newcomer(1002)], [true, false], 'a handshake that is over counts once')
  first[1]?.destroy()
  assert.deepEqual([newcomer(1003), newcomer(1004)], [true, false])
})

/** ms of this process's own time, whatever else the machine does */
const NEWCOMERS_CPU_MS = 300

test('threat 22: a newcomer costs the door the same, however many handshakes are under way', () => {
  const door = new Door()
  const address = (i: number): string => `2001:db8:${(i >> 8).toString(16)}:${(i & 255).toString(16)}::1`
  for (let i = 0; i < 40_000; i++) door.connect(address(i), 1)
  const before = process.cpuUsage()
  for (let i = 0; i < 1000; i++) door.connect(address(50_000 + i), 1)
  const { user, system } = process.cpuUsage(before)
  assert.ok((user + system) / 1000 < NEWCOMERS_CPU_MS, `${(user + system) / 1000} ms for 1000 newcomers`)
})
