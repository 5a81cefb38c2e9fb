// What volunteers and their links are like. Figures with their sources; a prediction is as good as these.

export interface LinkProfile {
  readonly name: string
  /** bytes per second of one volunteer towards others, and from them */
  readonly up: number
  readonly down: number
  /** ms from one volunteer to another, and to the coordinator, one way */
  readonly latencyMs: number
}

export interface MachineProfile {
  readonly name: string
  /** samples per second of the model at hand; each volunteer draws from these */
  readonly samplesPerSecond: readonly number[]
}

const MIB = 2 ** 20

/** A lab: one switch; node-datachannel measured 52–93 MB/s on loopback, one core of work at each end. */
export const LAB: LinkProfile = { name: 'lab', up: 50 * MIB, down: 50 * MIB, latencyMs: 0.5 }
/** Homes: 20 Mbit/s up, 100 down, 20 ms; Chrome's best over 20 ms is 6.8 MiB/s, so the line is the limit. */
export const HOMES: LinkProfile = { name: 'homes', up: 2.4 * MIB, down: 6.8 * MIB, latencyMs: 20 }

/** Machines as they come: software adapters, laptops, desktops; LeNet-5 samples per second (software: measured here, GPUs: assumed). */
export const MIXED: MachineProfile = { name: 'mixed', samplesPerSecond: [900, 4000, 4000, 12_000, 12_000, 30_000] }
