// The text that parity trains on: a very small GPT on Tiny Shakespeare or, where that is not at hand, on made-up words.
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { gpt } from '@starling-grid/model'
import { type JobSpec, random32 } from '@starling-grid/protocol'

/** beside the repository, where its other data lies */
const SHAKESPEARE = fileURLToPath(new URL('../../../shared/data/tinyshakespeare/input.txt', import.meta.url))
const CONTEXT = 32
/** 4 windows a block and 4 blocks a step: up to four members share a step in whole blocks. */
const BLOCK_SAMPLES = 4
const BATCH_BLOCKS = 4
const STEPS_PER_EPOCH = 60
const MADE_UP_WORDS = 20_000
const MADE_UP_SEED = 1

export interface TextFile {
  readonly path: string
  /** different characters */
  readonly vocab: number
}

export interface TextJobOptions extends TextFile {
  readonly stop: JobSpec['stop']
  readonly seed: number
  readonly minVolunteers: number
  readonly optimizer: JobSpec['optimizer']
}

export function textJob({ path, vocab, minVolunteers, ...options }: TextJobOptions): JobSpec {
  return {
    name: 'Characters of a text',
    owner: 'Starling',
    purpose: 'Teaches a very small GPT to continue a text.',
    model: gpt({ blocks: 2, heads: 2, channels: 32, context: CONTEXT, vocab }),
    dataset: {
      source: 'text',
      path,
      tokens: 'characters',
      windowsPerEpoch: STEPS_PER_EPOCH * BLOCK_SAMPLES * BATCH_BLOCKS,
    },
    blockSamples: BLOCK_SAMPLES,
    batchBlocks: BATCH_BLOCKS,
    mode: 'ring',
    volunteers: { min: minVolunteers },
    ...options,
  }
}

/**
 * Tiny Shakespeare where it is at hand; otherwise a text in `folder`, the same on every machine, and `say` tells so.
 */
export async function ensureText(folder: string, say: (text: string) => void): Promise<TextFile> {
  const shakespeare = await readFile(SHAKESPEARE, 'utf8').catch(() => undefined)
  if (shakespeare !== undefined) return { path: SHAKESPEARE, vocab: new Set(shakespeare).size }
  const text = madeUpText()
  const path = join(folder, 'words.txt')
  await writeFile(path, text)
  say('Tiny Shakespeare is not at hand; training on made-up words')
  return { path, vocab: new Set(text).size }
}

/** Words of consonants and vowels in turn, so that there is something to learn. */
function madeUpText(): string {
  const random = random32(MADE_UP_SEED)
  const letter = (of: string) => of.charAt(random() % of.length)
  const word = () => Array.from({ length: 1 + (random() % 3) }, () => letter('bdfgklmnprst') + letter('aeiou')).join('')
  return Array.from({ length: MADE_UP_WORDS }, word).join(' ')
}
