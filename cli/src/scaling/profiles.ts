// What volunteers and their links are like. Figures with their sources; a prediction is as good as these.

export interface LinkProfile {
  readonly name: string
  /** bytes per second of one volunteer towards others, and from them */
  readonly up: number
  readonly down: number
  /** ms from one volunteer to another, and to the coordinator, one way */
  readonly latencyMs: number
}

/** A kind of machine as people count them. */
export interface MachineKind {
  readonly name: string
  readonly plural: string
  /** other words for it, each in the singular */
  readonly words: readonly string[]
  /** 10⁹ floating-point operations of training per second, in large enough batches */
  readonly gflops: number
  readonly source: string
  /** no GPU behind it */
  readonly isSoftware?: true
}

export interface MachineProfile {
  readonly name: string
  /** samples per second of the model at hand; each volunteer draws from these */
  readonly samplesPerSecond: readonly number[]
}

const MIB = 2 ** 20

/** A lab: one switch; WebRTC in Node measured 41–59 MB/s on loopback, one core of work at each end. */
export const LAB: LinkProfile = { name: 'lab', up: 50 * MIB, down: 50 * MIB, latencyMs: 0.5 }
/** Homes: 20 Mbit/s up, 100 down, 20 ms. Between members the way up is the limit; down is from the coordinator. */
export const HOMES: LinkProfile = { name: 'homes', up: 2.4 * MIB, down: 11 * MIB, latencyMs: 20 }

/** Fibre at home, assumed: 100 Mbit/s up, 8 ms, of which a link carries as much. */
export const FIBRE: LinkProfile = { name: 'fibre', up: 11 * MIB, down: 11 * MIB, latencyMs: 8 }
/** A mobile network: 10 Mbit/s up, 30 down, 40 ms; assumed. */
export const MOBILE: LinkProfile = { name: 'mobile', up: 1.2 * MIB, down: 3.6 * MIB, latencyMs: 40 }

const NO_GPU_MEASURED = 'no such GPU was measured'
/**
 * Machines that a plan counts. The software adapter is SwiftShader on two cores of an AMD EPYC. It reaches 3.2 GFLOP/s
 * with LeNet-5, 3.9 with a small GPT and 4.0 with an MLP (`bench/results`, step). The others are assumed.
 */
export const MACHINE_KINDS: readonly MachineKind[] = [
  {
    name: 'software adapter',
    plural: 'software adapters',
    words: ['cpu', 'software gpu', 'machine without gpu'],
    gflops: 3.5,
    source: 'measured with SwiftShader on two cores',
    isSoftware: true,
  },
  { name: 'phone', plural: 'phones', words: ['tablet'], gflops: 30, source: `assumed: ${NO_GPU_MEASURED}` },
  {
    name: 'laptop',
    plural: 'laptops',
    words: ['notebook'],
    gflops: 100,
    source: `assumed for a GPU that shares the processor's memory: ${NO_GPU_MEASURED}`,
  },
  {
    name: 'desktop',
    plural: 'desktops',
    words: ['pc', 'desktop pc', 'computer'],
    gflops: 400,
    source: `assumed for a small GPU of its own: ${NO_GPU_MEASURED}`,
  },
  {
    name: 'gaming PC',
    plural: 'gaming PCs',
    words: ['gaming computer', 'gaming desktop'],
    gflops: 1000,
    source: `assumed for a large GPU: ${NO_GPU_MEASURED}`,
  },
  {
    name: 'GPU server',
    plural: 'GPU servers',
    words: ['server', 'server with gpu', 'server with a gpu'],
    gflops: 2500,
    source: `assumed for a data-centre GPU: ${NO_GPU_MEASURED}`,
  },
]

/**
 * Machines as they come: a software adapter, laptops, desktops, one large GPU. Samples per second of ResNet-20 on 32 ×
 * 32 images, 0.25 GFLOP to train on each. Assumed from 1, 100, 400 and 1,000 GFLOP/s that reach the kernels; no GPU was
 * measured.
 */
export const MIXED: MachineProfile = { name: 'mixed', samplesPerSecond: [400, 1600, 400, 4000, 1600, 400, 4] }

/** Software adapters on LeNet-5 and 28 × 28 images, 2.5 MFLOP to train on each. Assumed from 1 GFLOP/s, as above. */
export const SOFTWARE: MachineProfile = { name: 'software', samplesPerSecond: [400] }
