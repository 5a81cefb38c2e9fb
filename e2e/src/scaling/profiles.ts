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

/**
 * Machines as they come: a software adapter, laptops, desktops, one large GPU. Samples per second of ResNet-20 on 32 ×
 * 32 images, 0.25 GFLOP to train on each. Assumed from 1, 100, 400 and 1,000 GFLOP/s that reach the kernels; no GPU was
 * measured.
 */
export const MIXED: MachineProfile = { name: 'mixed', samplesPerSecond: [400, 1600, 400, 4000, 1600, 400, 4] }

/** Software adapters on LeNet-5 and 28 × 28 images, 2.5 MFLOP to train on each. Assumed from 1 GFLOP/s, as above. */
export const SOFTWARE: MachineProfile = { name: 'software', samplesPerSecond: [400] }
