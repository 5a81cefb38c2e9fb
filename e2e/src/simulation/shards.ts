// The dataset's files on the coordinator's disk, and what members that ask for one get: some blocks lie in each file.
import { type BlockId, blockIndex, type ErrorCode, type MemberId } from '@starling-grid/protocol'

/** blocks of a file */
const BLOCKS = 3

export interface ShardLook {
  readonly split: 'training' | 'validation'
  readonly indexes: readonly number[]
  readonly file: string
  readonly problem: string | undefined
}

export class SimulatedShards {
  readonly #blocks: { readonly training: number; readonly validation: number }
  /** files that are damaged, and members whose requests fail → until when, ms */
  readonly #damaged = new Map<string, number>()
  readonly #cutOff = new Map<MemberId, number>()

  constructor(blocks: { readonly training: number; readonly validation: number }) {
    this.#blocks = blocks
  }

  damage(block: BlockId, until: number): void {
    this.#damaged.set(fileOf(block), until)
  }

  cutOff(member: MemberId, until: number): void {
    this.#cutOff.set(member, until)
  }

  /** What a member meets that asks for these blocks; undefined: their bytes. */
  failure(member: MemberId, blocks: readonly BlockId[], now: number): ErrorCode | undefined {
    if ((this.#cutOff.get(member) ?? 0) > now) return 'coordinator-lost'
    return blocks.some((block) => this.#isDamaged(fileOf(block), now)) ? 'shard-corrupt' : undefined
  }

  /** The coordinator's look at its own copies of the files of these blocks, as shard-check.ts does. */
  look(blocks: readonly BlockId[], now: number): ShardLook[] {
    const files = new Map(blocks.map((block) => [fileOf(block), block]))
    return [...files].map(([file, block]) => {
      const split = splitOf(block)
      const first = BLOCKS * Math.floor(blockIndex(block) / BLOCKS)
      const indexes = [0, 1, 2].map((i) => first + i).filter((index) => index < this.#blocks[split])
      return { split, indexes, file, problem: this.#isDamaged(file, now) ? `${file} is damaged` : undefined }
    })
  }

  #isDamaged(file: string, now: number): boolean {
    return (this.#damaged.get(file) ?? 0) > now
  }
}

function splitOf(block: BlockId): 'training' | 'validation' {
  return block.startsWith('v:') ? 'validation' : 'training'
}

/** Every epoch reads the same files. */
function fileOf(block: BlockId): string {
  return `${splitOf(block)} file ${Math.floor(blockIndex(block) / BLOCKS)}`
}
