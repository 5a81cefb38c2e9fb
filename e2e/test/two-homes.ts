// Two homes behind routers of their own, and a street between them with a coordinator and a STUN and TURN server:
// network namespaces of this machine, of which nothing leaves. Addresses are those that documents use (RFC 5737): to
// volunteers they are public ones.
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { describeError } from '@starling-grid/protocol'

const STARLING = fileURLToPath(new URL('../../bin/starling.mjs', import.meta.url))
export const SERVER = '203.0.113.10'
const HOMES = ['a', 'b'] as const
export type Home = (typeof HOMES)[number]

/**
 * How a router maps a home's ports. `cone`: a port stays the same whatever it is sent to, so that STUN tells what
 * others reach. `symmetric`: each destination gets a port of its own by chance, so that it does not.
 */
export type Nat = 'cone' | 'symmetric'

/** Why none can be built here; undefined: they can. */
export function noHomes(): string | undefined {
  if (process.platform !== 'linux' || process.getuid?.() !== 0) return 'network namespaces need root on Linux'
  const missing = ['ip', 'iptables', 'turnserver'].filter((name) => !isInstalled(name))
  if (missing.length > 0) return `${missing.join(', ')} not installed (Debian: iproute2, iptables, coturn)`
  const name = `starling-${process.pid}`
  try {
    run('ip', ['netns', 'add', name])
    run('ip', ['netns', 'exec', name, 'iptables', '-t', 'nat', '-A', 'POSTROUTING', '-o', 'lo', '-j', 'MASQUERADE'])
    return undefined
  } catch (error) {
    return `this machine allows no network namespaces with NAT: ${describeError(error)}`
  } finally {
    try {
      run('ip', ['netns', 'del', name])
    } catch {
      // it was never made
    }
  }
}

const FOLDERS = ['/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin', '/sbin', '/bin']
const isInstalled = (name: string): boolean => FOLDERS.some((folder) => existsSync(`${folder}/${name}`))

function run(program: string, args: readonly string[]): void {
  execFileSync(program, [...args], { stdio: ['ignore', 'ignore', 'pipe'] })
}

export interface Resident {
  readonly lines: readonly string[]
  readonly process: ChildProcess
}

export class TwoHomes {
  /** names of namespaces are of the whole machine */
  readonly #prefix = `st${process.pid}`
  readonly #residents: Resident[] = []

  static build(nat: Nat): TwoHomes {
    const homes = new TwoHomes()
    try {
      homes.#build(nat)
      return homes
    } catch (error) {
      homes.#remove()
      throw error
    }
  }

  /** A program in the street or in a home; it ends with `tearDown`. */
  start(place: 'street' | Home, program: string, args: readonly string[], env: NodeJS.ProcessEnv = {}): Resident {
    const child = spawn('ip', ['netns', 'exec', this.#space(place), program, ...args], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, NO_COLOR: '1', ...env },
    })
    const lines: string[] = []
    for (const stream of [child.stdout, child.stderr]) createInterface(stream).on('line', (line) => lines.push(line))
    const resident = { lines, process: child }
    this.#residents.push(resident)
    return resident
  }

  starling(place: 'street' | Home, args: readonly string[], env: NodeJS.ProcessEnv = {}): Resident {
    return this.start(place, process.execPath, [STARLING, ...args], env)
  }

  async tearDown(): Promise<void> {
    for (const { process: child } of this.#residents) {
      if (child.exitCode !== null || child.signalCode !== null) continue
      child.kill('SIGKILL') // `ip netns exec` became the program itself
      await once(child, 'exit')
    }
    this.#remove()
  }

  #space(place: string): string {
    return `${this.#prefix}-${place}`
  }

  #ip(...args: readonly string[]): void {
    run('ip', args)
  }

  #in(place: string, ...command: readonly string[]): void {
    run('ip', ['netns', 'exec', this.#space(place), ...command])
  }

  #build(nat: Nat): void {
    const spaces = ['street', ...HOMES.flatMap((home) => [home, `router-${home}`])]
    for (const space of spaces) {
      this.#ip('netns', 'add', this.#space(space))
      this.#in(space, 'ip', 'link', 'set', 'lo', 'up')
    }
    this.#in('street', 'ip', 'link', 'add', 'street', 'type', 'bridge')
    this.#in('street', 'ip', 'addr', 'add', `${SERVER}/24`, 'dev', 'street')
    this.#in('street', 'ip', 'link', 'set', 'street', 'up')
    for (const [i, home] of HOMES.entries()) this.#buildHome(home, i + 1, nat)
  }

  #buildHome(home: Home, number: number, nat: Nat): void {
    const router = `router-${home}`
    this.#wire(['street', home], [router, 'wan'])
    this.#in('street', 'ip', 'link', 'set', 'dev', home, 'master', 'street')
    this.#in(router, 'ip', 'addr', 'add', `203.0.113.${20 + number}/24`, 'dev', 'wan')
    this.#wire([home, 'lan'], [router, 'lan'])
    this.#in(router, 'ip', 'addr', 'add', `192.168.${number}.1/24`, 'dev', 'lan')
    this.#in(home, 'ip', 'addr', 'add', `192.168.${number}.10/24`, 'dev', 'lan')
    this.#in(home, 'ip', 'route', 'add', 'default', 'via', `192.168.${number}.1`)
    this.#in(router, 'sysctl', '--quiet', '--write', 'net.ipv4.ip_forward=1')
    const random = nat === 'symmetric' ? ['--random-fully'] : []
    this.#in(router, 'iptables', '-t', 'nat', '-A', 'POSTROUTING', '-o', 'wan', '-j', 'MASQUERADE', ...random)
    // Nothing enters that a home did not ask for.
    for (const chain of ['INPUT', 'FORWARD']) {
      this.#in(
        router,
        'iptables',
        '-A',
        chain,
        '-i',
        'wan',
        '-m',
        'conntrack',
        '--ctstate',
        'ESTABLISHED',
        '-j',
        'ACCEPT',
      )
      this.#in(router, 'iptables', '-A', chain, '-i', 'wan', '-j', 'DROP')
    }
  }

  #wire([one, oneName]: readonly [string, string], [other, otherName]: readonly [string, string]): void {
    const there = ['name', otherName, 'netns', this.#space(other)]
    this.#in(one, 'ip', 'link', 'add', 'name', oneName, 'type', 'veth', 'peer', ...there)
    this.#in(one, 'ip', 'link', 'set', 'dev', oneName, 'up')
    this.#in(other, 'ip', 'link', 'set', 'dev', otherName, 'up')
  }

  #remove(): void {
    for (const space of ['street', ...HOMES.flatMap((home) => [home, `router-${home}`])])
      try {
        run('ip', ['netns', 'del', this.#space(space)])
      } catch {
        // it was never made
      }
  }
}
