// Makes the data of the example jobs in a folder, the same at each call: node examples/make-data.mjs FOLDER
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PNG } from 'pngjs'

const [, , folder = 'example-data'] = process.argv
const SEED = 20_260

/** Numbers from 0 to below 1. Source: mulberry32, Tommy Ettinger (2017). */
function randomOf(seed) {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let bits = Math.imul(state ^ (state >>> 15), 1 | state)
    bits = (bits + Math.imul(bits ^ (bits >>> 7), 61 | bits)) ^ bits
    return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32
  }
}

/** Standard normal. Source: Box and Muller (1958). */
function normalOf(random) {
  return () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random())
}

const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0)
const numbers = (count, next) => Array.from({ length: count }, next)

/** Price and rent of homes: sums of six features and noise. */
function homes() {
  const random = randomOf(SEED)
  const normal = normalOf(random)
  const [price, rent] = [
    [3.1, 12, -4, 8, -0.6, 20],
    [0.9, 5, -1, 4, -0.2, 6],
  ]
  const rows = numbers(2000, () => {
    const home = [30 + 150 * random(), 1 + Math.floor(6 * random()), 20 * random(), random(), 80 * random(), random()]
    const cells = [...home, 50 + dot(home, price) + 8 * normal(), 20 + dot(home, rent) + 3 * normal()]
    return cells.map((cell) => cell.toFixed(3)).join(',')
  })
  return ['area,rooms,distance,light,age,garden,price,rent', ...rows, ''].join('\n')
}

/** Songs of eight measures: each of three moods is there or not, by chance, more or less likely by the measures. */
function songs() {
  const random = randomOf(SEED + 1)
  const normal = normalOf(random)
  const moods = numbers(3, () => numbers(8, () => 2 * normal()))
  const rows = numbers(2000, () => {
    const measures = numbers(8, () => Number(normal().toFixed(4)))
    const tags = moods.map((mood) => Number(random() < 1 / (1 + Math.exp(-dot(measures, mood)))))
    return JSON.stringify({ measures, calm: tags[0], loud: tags[1], old: tags[2] })
  })
  return `${rows.join('\n')}\n`
}

const FRUITS = { cherry: [200, 30, 50], leaf: [60, 170, 60], plum: [120, 50, 160] }
const [SIDE, PICTURES] = [16, 150]
/** Other kinds, of which there are few pictures: half of them to learn from. */
const FEW = { banana: [220, 200, 60], blueberry: [70, 70, 190], lime: [140, 200, 40], peach: [240, 150, 110] }
const FEW_PICTURES = 24

/** A disc of about its fruit's colour somewhere on noise. */
function picture(colour, random) {
  const png = new PNG({ width: SIDE, height: SIDE })
  const [row, column, radius] = [4 + 8 * random(), 4 + 8 * random(), 2 + 2.5 * random()]
  for (let y = 0; y < SIDE; y++)
    for (let x = 0; x < SIDE; x++) {
      const isDisc = (y - row) ** 2 + (x - column) ** 2 < radius ** 2
      for (let c = 0; c < 3; c++) {
        const light = isDisc ? colour[c] + 80 * (random() - 0.5) : 255 * random()
        png.data[4 * (SIDE * y + x) + c] = Math.max(0, Math.min(255, light))
      }
      png.data[4 * (SIDE * y + x) + 3] = 255
    }
  return PNG.sync.write(png)
}

async function pictures(path, { kinds, count, seed }) {
  const random = randomOf(seed)
  for (const [name, colour] of Object.entries(kinds)) {
    await mkdir(join(path, name), { recursive: true })
    for (let i = 0; i < count; i++) await writeFile(join(path, name, `${i}.png`), picture(colour, random))
  }
}

const WORDS = {
  adjective: ['small', 'quiet', 'golden', 'wild', 'early', 'gentle', 'silver', 'hungry'],
  noun: ['starling', 'river', 'window', 'farmer', 'garden', 'morning', 'harbour', 'letter'],
  verb: ['follows', 'remembers', 'watches', 'carries', 'answers', 'forgets', 'paints', 'crosses'],
}
const SENTENCES = 4000

/** "the quiet river follows the golden letter." : five choices of eight words each. */
function text() {
  const random = randomOf(SEED + 3)
  const one = (words) => words[Math.floor(random() * words.length)]
  const thing = () => `the ${one(WORDS.adjective)} ${one(WORDS.noun)}`
  return `${numbers(SENTENCES, () => `${thing()} ${one(WORDS.verb)} ${thing()}.`).join('\n')}\n`
}

const MERGES = 200
const SPACE = 'Ġ'
const NEWLINE = 'Ċ'

/** Byte-pair encoding: the most frequent pair becomes a piece, again and again. Source: Sennrich et al. (2016). */
function tokenizer(content) {
  const counts = new Map()
  for (const [word] of content.matchAll(/ ?[a-z]+|[^a-z]/g)) counts.set(word, (counts.get(word) ?? 0) + 1)
  const written = (letter) => ({ ' ': SPACE, '\n': NEWLINE })[letter] ?? letter
  const words = [...counts].map(([word, count]) => ({ pieces: [...word].map(written), count }))
  const vocabulary = [...new Set(words.flatMap(({ pieces }) => pieces))].sort()
  const merges = []
  while (merges.length < MERGES) {
    const best = mostFrequentPair(words)
    if (best === undefined) break
    merges.push(best)
    vocabulary.push(best.join(''))
    for (const word of words) word.pieces = merged(word.pieces, best)
  }
  const model = { type: 'BPE', dropout: null, unk_token: null }
  return {
    version: '1.0',
    added_tokens: [],
    normalizer: null,
    pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true },
    post_processor: null,
    decoder: { type: 'ByteLevel' },
    model: {
      ...model,
      vocab: Object.fromEntries(vocabulary.map((piece, i) => [piece, i])),
      merges: merges.map((pair) => pair.join(' ')),
    },
  }
}

function mostFrequentPair(words) {
  const pairs = new Map()
  for (const { pieces, count } of words)
    for (let i = 1; i < pieces.length; i++) {
      const pair = `${pieces[i - 1]} ${pieces[i]}`
      pairs.set(pair, (pairs.get(pair) ?? 0) + count)
    }
  const [best] = [...pairs].sort(([a, m], [b, n]) => n - m || (a < b ? -1 : 1))
  return best?.[0].split(' ')
}

function merged(pieces, [left, right]) {
  const result = []
  for (const piece of pieces)
    if (piece === right && result.at(-1) === left) result[result.length - 1] = left + right
    else result.push(piece)
  return result
}

await mkdir(folder, { recursive: true })
const sentences = text()
await writeFile(join(folder, 'homes.csv'), homes())
await writeFile(join(folder, 'songs.jsonl'), songs())
await writeFile(join(folder, 'sentences.txt'), sentences)
await writeFile(join(folder, 'tokenizer.json'), JSON.stringify(tokenizer(sentences)))
await pictures(join(folder, 'fruits'), { kinds: FRUITS, count: PICTURES, seed: SEED + 2 })
await pictures(join(folder, 'few'), { kinds: FEW, count: FEW_PICTURES, seed: SEED + 4 })
console.log(`made homes.csv, songs.jsonl, sentences.txt, tokenizer.json, fruits and few in ${folder}`)
