// A small language model in the form in which Hugging Face publishes them, with seeded weights: config.json, sharded
// safetensors with their index, a byte-level tokenizer.json with a chat template. For tests that import one.
import { fixedEntries, halves, parseModelSpec, publishedShape, toPublished } from '@starling-grid/model'
import { floatTensor, type StoredTensor, writeSafetensors } from '@starling-grid/protocol'
import { noise } from './executor-suite.ts'

export const SMALL_LLAMA = {
  architectures: ['LlamaForCausalLM'],
  model_type: 'llama',
  vocab_size: 262,
  hidden_size: 32,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 8,
  intermediate_size: 48,
  hidden_act: 'silu',
  rms_norm_eps: 1e-5,
  rope_theta: 10_000,
  max_position_embeddings: 256,
  tie_word_embeddings: true,
  torch_dtype: 'float32',
  eos_token_id: 257,
} as const

/** The form of SmolLM2-135M, as its config.json says it. */
export const SMOLLM2_135M = {
  model_type: 'llama',
  vocab_size: 49_152,
  hidden_size: 576,
  num_hidden_layers: 30,
  num_attention_heads: 9,
  num_key_value_heads: 3,
  intermediate_size: 1536,
  rms_norm_eps: 1e-5,
  rope_theta: 100_000,
  max_position_embeddings: 8192,
  tie_word_embeddings: true,
} as const

/** Special tokens behind the 256 bytes. */
export const SPECIAL = ['<|endoftext|>', '<|im_end|>', '<|im_start|>', '<|pad|>'] as const

const CHAT_TEMPLATE =
  '{% for message in messages %}' +
  "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}" +
  "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"

export interface PublishedOptions {
  readonly config?: Readonly<Record<string, unknown>>
  readonly dtype?: 'F32' | 'F16' | 'BF16'
  /** files of tensors; with more than one there is an index */
  readonly files?: number
  readonly seed?: number
  /** tensors are called as in files of the model without its head */
  readonly bare?: boolean
}

/** File name → its content. */
export function publishedModel({
  config = SMALL_LLAMA,
  dtype = 'F32',
  files = 1,
  seed = 1,
  bare = false,
}: PublishedOptions = {}): Map<string, Uint8Array | string> {
  const made = new Map<string, Uint8Array | string>([
    ['config.json', JSON.stringify(config)],
    ['tokenizer.json', JSON.stringify(byteTokenizer())],
    ['tokenizer_config.json', JSON.stringify({ eos_token: '<|im_end|>', chat_template: CHAT_TEMPLATE })],
    ['generation_config.json', JSON.stringify({ eos_token_id: [257] })],
  ])
  const called = (name: string): string => (bare ? name.replace(/^(model|transformer)\./, '') : name)
  const tensors = [...publishedTensors(config, seed)].map(([name, tensor]) => [called(name), tensor] as const)
  const map: Record<string, string> = {}
  for (let i = 0; i < files; i++) {
    const name = files === 1 ? 'model.safetensors' : `model-${number(i + 1)}-of-${number(files)}.safetensors`
    const part = tensors.filter((_, at) => at % files === i)
    for (const [tensor] of part) map[tensor] = name
    made.set(name, writeSafetensors(new Map(part.map(([key, value]) => [key, stored(value, dtype)])), { format: 'pt' }))
  }
  if (files > 1) made.set('model.safetensors.index.json', JSON.stringify({ metadata: {}, weight_map: map }))
  return made
}

/** Name → shape and values, as published files have them. */
export function publishedTensors(
  config: Readonly<Record<string, unknown>> = SMALL_LLAMA,
  seed = 1,
): Map<string, { readonly shape: readonly number[]; readonly values: Float32Array }> {
  const spec = parseModelSpec({ input: [2], layers: [{ type: 'causal_lm', config, lora: {} }] })
  return new Map(
    fixedEntries(spec).flatMap((entry, i) => {
      if (entry.kind === 'constant') return []
      const isNorm = /norm|ln_/.test(entry.name) && !entry.name.endsWith('bias')
      const values = noise(entry.length, seed * 1000 + i).map((value) => (isNorm ? 1 : 0) + 0.15 * value)
      return [[entry.name, { shape: publishedShape(entry), values: toPublished(entry, values) }]]
    }),
  )
}

function number(value: number): string {
  return String(value).padStart(5, '0')
}

function stored(
  { shape, values }: { readonly shape: readonly number[]; readonly values: Float32Array },
  dtype: 'F32' | 'F16' | 'BF16',
): StoredTensor {
  if (dtype === 'F32') return floatTensor(shape, values)
  if (dtype === 'F16') return { dtype, shape, data: halves(values) }
  const words = new Uint32Array(values.slice().buffer)
  return { dtype, shape, data: new Uint8Array(Uint16Array.from(words, (word) => word >>> 16).buffer) }
}

/** Each byte a token, by the characters that stand for bytes in GPT-2's tokenizers. */
function byteTokenizer(): object {
  const printable = (byte: number): boolean =>
    (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255)
  let next = 256
  const characters = Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(printable(byte) ? byte : next++))
  const added = SPECIAL.map((content, i) => ({
    id: 256 + i,
    content,
    single_word: false,
    lstrip: false,
    rstrip: false,
    normalized: false,
    special: true,
  }))
  return {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: added,
    normalizer: null,
    pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true },
    post_processor: null,
    decoder: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true },
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      vocab: Object.fromEntries(characters.map((character, byte) => [character, byte])),
      merges: [],
    },
  }
}
