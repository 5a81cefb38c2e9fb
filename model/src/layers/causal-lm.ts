// Published language models: their `config.json`, and the operators that it stands for. Parameters have the names that
// Hugging Face's files give them; adapters those of PEFT.

import { invalid, type Fields } from '../fields.ts'
import {
  FAMILIES,
  type CausalLmConfig,
  type CausalLmLayer,
  type Family,
  type LinearLayer,
  type Lora,
  type OperatorLayer,
  type RopeScaling,
} from '../spec.ts'
import { SIZE } from './rule.ts'
import type { ExpandedOperators, Value } from './transformer.ts'

const MAX_BLOCKS = 512
/** Standard deviation of initial weights, `initializer_range` of all the families. */
const DEVIATION = 0.02
/** What PEFT puts before the names of a model that it wraps. */
export const PEFT_PREFIX = 'base_model.model.'
/** Beyond this an adapter is no longer small beside the matrix that it adapts. */
const MAX_RANK = 512
const MAX_TARGETS = 64
export const ALL_LINEAR = 'all-linear'

/** Names of activations in configurations → ours. */
const ACTIVATIONS: Readonly<Record<string, CausalLmConfig['hidden_act']>> = {
  silu: 'silu',
  swish: 'silu',
  gelu: 'gelu',
  gelu_new: 'gelu_tanh',
  gelu_pytorch_tanh: 'gelu_tanh',
  gelu_tanh: 'gelu_tanh',
  relu: 'relu',
}

export function readCausalLm(fields: Fields): CausalLmLayer {
  const config = fields.object('config')
  if (config === undefined) throw fields.refuse('config', "an object, a published model's config.json", undefined)
  const lora = fields.object('lora')
  return {
    type: 'causal_lm',
    config: readConfig(config),
    ...(lora === undefined ? {} : { lora: readLora(lora) }),
    ...(fields.boolean('frozen', false) ? { frozen: true as const } : {}),
  }
}

/** A configuration has much that says nothing of the model's form: what is not read here is let go. */
function readConfig(fields: Fields): CausalLmConfig {
  const family = fields.requiredChoice('model_type', FAMILIES) as Family
  return family === 'gpt2' ? readGpt2(fields) : readLlama(fields, family)
}

function readLlama(fields: Fields, family: Exclude<Family, 'gpt2'>): CausalLmConfig {
  const heads = fields.integer('num_attention_heads', SIZE)
  const channels = fields.integer('hidden_size', SIZE)
  requireFullAttention(fields)
  const eps = fields.optionalPositive('eps') ?? fields.positive('rms_norm_eps', 1e-6)
  const attentionBias = fields.boolean('attention_bias', family === 'qwen2')
  return {
    model_type: family,
    vocab_size: fields.integer('vocab_size', SIZE),
    hidden_size: channels,
    num_hidden_layers: fields.integer('num_hidden_layers', { min: 1, max: MAX_BLOCKS }),
    num_attention_heads: heads,
    num_key_value_heads: fields.integer('num_key_value_heads', { ...SIZE, otherwise: heads }),
    head_dim: fields.integer('head_dim', {
      ...SIZE,
      otherwise: family === 'qwen3' ? 128 : Math.max(1, Math.floor(channels / heads)),
    }),
    intermediate_size: fields.integer('intermediate_size', SIZE),
    hidden_act: readActivation(fields, ['hidden_act'], ['silu']),
    eps,
    max_position_embeddings: fields.integer('max_position_embeddings', { ...SIZE, otherwise: 2048 }),
    ...readRope(fields),
    attention_bias: attentionBias,
    output_bias: fields.boolean('output_bias', attentionBias && family !== 'qwen2'),
    mlp_bias: fields.boolean('mlp_bias', false),
    tie_word_embeddings: fields.boolean('tie_word_embeddings', false),
  }
}

/** `rope_theta` and `rope_scaling`, or both in `rope_parameters`, as newer files have it. */
function readRope(fields: Fields): Pick<CausalLmConfig, 'rope_theta' | 'rope_scaling'> {
  const parameters = presentObject(fields, 'rope_parameters')
  const theta = parameters?.positive('rope_theta', 10_000) ?? fields.positive('rope_theta', 10_000)
  const scaling = readScaling(parameters ?? presentObject(fields, 'rope_scaling'))
  return { rope_theta: theta, ...(scaling === undefined ? {} : { rope_scaling: scaling }) }
}

/** `null` stands for absent in configurations. */
function presentObject(fields: Fields, key: string): Fields | undefined {
  return fields.take(key) === null ? undefined : fields.object(key)
}

function readScaling(fields: Fields | undefined): RopeScaling | undefined {
  if (fields === undefined) return undefined
  const named = fields.take('rope_type') === undefined ? 'type' : 'rope_type'
  const type = fields.choice(named, ['default', 'linear', 'llama3'], 'default')
  switch (type) {
    case 'default':
      return undefined
    case 'linear':
      return { rope_type: type, factor: fields.positive('factor') }
    case 'llama3':
      return {
        rope_type: type,
        factor: fields.positive('factor'),
        low_freq_factor: fields.positive('low_freq_factor'),
        high_freq_factor: fields.positive('high_freq_factor'),
        original_max_position_embeddings: fields.integer('original_max_position_embeddings', SIZE),
      }
    default:
      return type satisfies never
  }
}

/** A window that slides would make other logits: it is refused rather than left out. */
function requireFullAttention(fields: Fields): void {
  const slides = fields.take('use_sliding_window') === true
  const types = fields.take('layer_types')
  if (slides || (Array.isArray(types) && types.some((type) => type !== 'full_attention')))
    throw fields.refuse('use_sliding_window', 'false: attention that sees all earlier tokens', true)
}

function readGpt2(fields: Fields): CausalLmConfig {
  const either = (own: string, common: string, otherwise?: number): number =>
    fields.take(common) === undefined
      ? fields.integer(own, { ...SIZE, ...(otherwise === undefined ? {} : { otherwise }) })
      : fields.integer(common, SIZE)
  const channels = either('n_embd', 'hidden_size')
  const heads = either('n_head', 'num_attention_heads')
  if (channels % heads !== 0) throw fields.refuse('n_embd', `a number divisible by its ${heads} heads`, channels)
  for (const key of ['scale_attn_by_inverse_layer_idx', 'add_cross_attention'])
    if (fields.take(key) === true) throw fields.refuse(key, 'false', true)
  const inner = fields.take('n_inner')
  const eps = fields.optionalPositive('eps') ?? fields.positive('layer_norm_epsilon', 1e-5)
  return {
    model_type: 'gpt2',
    vocab_size: fields.integer('vocab_size', SIZE),
    hidden_size: channels,
    num_hidden_layers: either('n_layer', 'num_hidden_layers'),
    num_attention_heads: heads,
    num_key_value_heads: heads,
    head_dim: channels / heads,
    intermediate_size:
      fields.optionalInteger('intermediate_size', SIZE) ??
      (typeof inner === 'number' ? fields.integer('n_inner', SIZE) : 4 * channels),
    hidden_act: readActivation(fields, ['hidden_act', 'activation_function'], ['gelu_tanh', 'gelu', 'relu', 'silu']),
    eps,
    max_position_embeddings: either('n_positions', 'max_position_embeddings'),
    attention_bias: true,
    output_bias: true,
    mlp_bias: true,
    tie_word_embeddings: fields.boolean('tie_word_embeddings', true),
  }
}

function readActivation(
  fields: Fields,
  keys: readonly string[],
  allowed: readonly [CausalLmConfig['hidden_act'], ...CausalLmConfig['hidden_act'][]],
): CausalLmConfig['hidden_act'] {
  const key = keys.find((name) => fields.take(name) !== undefined)
  if (key === undefined) return allowed[0]
  const value = fields.take(key)
  const found = typeof value === 'string' && Object.hasOwn(ACTIVATIONS, value) ? ACTIVATIONS[value] : undefined
  if (found !== undefined && allowed.includes(found)) return found
  throw fields.refuse(key, `one of ${allowed.join(', ')}`, value)
}

export function readLora(fields: Fields): Lora {
  const rank = fields.integer('rank', { min: 1, max: MAX_RANK, otherwise: 8 })
  const lora: Lora = {
    rank,
    alpha: fields.positive('alpha', 2 * rank),
    dropout: fields.fraction('dropout') ?? 0,
    targets: readTargets(fields),
  }
  fields.requireAllRead()
  return lora
}

function readTargets(fields: Fields): Lora['targets'] {
  const value = fields.take('targets') ?? ALL_LINEAR
  if (value === ALL_LINEAR) return ALL_LINEAR
  const isName = (name: unknown): name is string => typeof name === 'string' && /^[a-z0-9_.]{1,100}$/.test(name)
  if (!Array.isArray(value) || value.length === 0 || value.length > MAX_TARGETS || !value.every(isName))
    throw fields.refuse('targets', `${ALL_LINEAR}, or a list of names such as q_proj`, value)
  return [...new Set(value)].sort()
}

// ids (T,) → logits (T, vocab_size)
export function expandCausalLm(to: ExpandedOperators, layer: CausalLmLayer, ids: Value, place: string): Value {
  const { config, lora } = layer
  const [length = 0] = to.shapeOf(ids)
  if (length > config.max_position_embeddings)
    throw invalid(place, `a context of at most ${config.max_position_embeddings} tokens`, String(length))
  const decoder = new Decoder(to, layer, place)
  const logits = config.model_type === 'gpt2' ? decoder.gpt2(ids) : decoder.llama(ids)
  const unused = lora === undefined || lora.targets === ALL_LINEAR ? [] : decoder.unusedTargets(lora.targets)
  if (unused.length > 0)
    throw invalid(place, `\`lora.targets\` among its linear layers ${decoder.linearNames()}`, unused.join(', '))
  return logits
}

class Decoder {
  readonly #to: ExpandedOperators
  readonly #config: CausalLmConfig
  readonly #lora: Lora | undefined
  readonly #isFrozen: boolean
  readonly #place: string
  /** full names of linear layers */
  readonly #linear: string[] = []

  constructor(to: ExpandedOperators, { config, lora, frozen }: CausalLmLayer, place: string) {
    this.#to = to
    this.#config = config
    this.#lora = lora
    this.#isFrozen = frozen === true
    this.#place = place
  }

  llama(ids: Value): Value {
    const { num_hidden_layers: blocks, vocab_size: vocab, hidden_size: channels } = this.#config
    const tokens = 'model.embed_tokens'
    let x = this.#add({ type: 'embedding', name: tokens, vocab, channels, ...this.#frozen }, [ids])
    for (let i = 0; i < blocks; i++) x = this.#llamaBlock(`model.layers.${i}`, x, i)
    return this.#head('lm_head', `${tokens}.weight`, this.#rmsnorm('model.norm', x))
  }

  gpt2(ids: Value): Value {
    const { num_hidden_layers: blocks, vocab_size: vocab, hidden_size: channels } = this.#config
    const context = this.#config.max_position_embeddings
    const embedded = this.#add({ type: 'embedding', name: 'transformer.wte', vocab, channels, ...this.#frozen }, [ids])
    let x = this.#add({ type: 'positions', name: 'transformer.wpe', context, ...this.#frozen }, [embedded])
    for (let i = 0; i < blocks; i++) x = this.#gpt2Block(`transformer.h.${i}`, x)
    return this.#head('lm_head', 'transformer.wte.weight', this.#layernorm('transformer.ln_f', x))
  }

  /** of these ends of names, those that no linear layer has */
  unusedTargets(targets: readonly string[]): string[] {
    return targets.filter((target) => !this.#linear.some((name) => endsIn(name, target)))
  }

  linearNames(): string {
    return [...new Set(this.#linear.map((name) => name.slice(name.lastIndexOf('.') + 1)))].join(', ')
  }

  get #frozen(): { readonly frozen?: true } {
    return this.#lora === undefined && !this.#isFrozen ? {} : { frozen: true }
  }

  #add(layer: OperatorLayer, inputs: readonly [Value, ...Value[]]): Value {
    return this.#to.operator(layer, inputs, this.#place)
  }

  #llamaBlock(name: string, x: Value, index: number): Value {
    const attended = this.#add({ type: 'add' }, [x, this.#attention(`${name}.self_attn`, name, x, index)])
    const normed = this.#rmsnorm(`${name}.post_attention_layernorm`, attended)
    const { intermediate_size: hidden, hidden_size: channels, mlp_bias: bias } = this.#config
    const gate = this.#linearLayer(`${name}.mlp.gate_proj`, hidden, normed, { bias })
    const up = this.#linearLayer(`${name}.mlp.up_proj`, hidden, normed, { bias })
    const gated = this.#add({ type: 'swiglu' }, [gate, up])
    return this.#add({ type: 'add' }, [attended, this.#linearLayer(`${name}.mlp.down_proj`, channels, gated, { bias })])
  }

  // oxlint-disable-next-line max-params -- a block's names, value and place in the order of the formula
  #attention(name: string, block: string, x: Value, index: number): Value {
    const { num_attention_heads: heads, num_key_value_heads: kvHeads, head_dim: headSize } = this.#config
    const { attention_bias: bias, output_bias: outputBias, hidden_size: channels } = this.#config
    const normed = this.#rmsnorm(`${block}.input_layernorm`, x)
    const project = (part: string, count: number) =>
      this.#linearLayer(`${name}.${part}_proj`, count * headSize, normed, { bias })
    const [q, k, v] = [project('q', heads), project('k', kvHeads), project('v', kvHeads)]
    const isNormed = this.#config.model_type === 'qwen3'
    const [queries, keys] = isNormed
      ? [this.#rmsnorm(`${name}.q_norm`, q, headSize), this.#rmsnorm(`${name}.k_norm`, k, headSize)]
      : [q, k]
    const { rope_theta: theta = 0, rope_scaling: scaling } = this.#config
    const rope = { theta, ...(scaling === undefined ? {} : { scaling }) }
    const tied = index === 0 ? {} : { tied: true as const }
    const packed = this.#add({ type: 'rotary', heads, kv_heads: kvHeads, rope, ...tied }, [queries, keys, v])
    const mixed = this.#add({ type: 'attention', heads, causal: true }, [packed])
    return this.#linearLayer(`${name}.o_proj`, channels, mixed, { bias: outputBias })
  }

  #gpt2Block(name: string, x: Value): Value {
    const { hidden_size: channels, num_attention_heads: heads, intermediate_size: hidden } = this.#config
    const published = { bias: true, transposed: true } as const
    const normed = this.#layernorm(`${name}.ln_1`, x)
    const qkv = this.#linearLayer(`${name}.attn.c_attn`, 3 * channels, normed, published)
    const mixed = this.#add({ type: 'attention', heads, causal: true }, [qkv])
    const attended = this.#add({ type: 'add' }, [
      x,
      this.#linearLayer(`${name}.attn.c_proj`, channels, mixed, published),
    ])
    const middle = this.#linearLayer(`${name}.mlp.c_fc`, hidden, this.#layernorm(`${name}.ln_2`, attended), published)
    const active = this.#add({ type: this.#config.hidden_act }, [middle])
    return this.#add({ type: 'add' }, [attended, this.#linearLayer(`${name}.mlp.c_proj`, channels, active, published)])
  }

  #head(name: string, table: string, x: Value): Value {
    const { vocab_size: vocab, tie_word_embeddings: tied } = this.#config
    if (!tied) return this.#linearLayer(name, vocab, x, { bias: false })
    const layer: LinearLayer = { type: 'linear', name, out: vocab, bias: false, tied: table, ...this.#frozen }
    return this.#add(layer, [x])
  }

  #rmsnorm(name: string, x: Value, size?: number): Value {
    const { eps } = this.#config
    return this.#add({ type: 'rmsnorm', name, eps, ...(size === undefined ? {} : { size }), ...this.#frozen }, [x])
  }

  #layernorm(name: string, x: Value): Value {
    return this.#add({ type: 'layernorm', name, eps: this.#config.eps, bias: true, ...this.#frozen }, [x])
  }

  // oxlint-disable-next-line max-params -- a layer's name, width, value and form, as the blocks above write them
  #linearLayer(
    name: string,
    out: number,
    x: Value,
    form: { readonly bias: boolean; readonly transposed?: true },
  ): Value {
    this.#linear.push(name)
    const y = this.#add({ type: 'linear', name, out, ...form, deviation: DEVIATION, ...this.#frozen }, [x])
    return this.#lora !== undefined && adapts(this.#lora, name) ? this.#adapted(this.#lora, name, x, y) : y
  }

  // y + alpha/rank · B·A·dropout(x)
  // oxlint-disable-next-line max-params -- the letters of the formula
  #adapted({ rank, alpha, dropout: p }: Lora, name: string, x: Value, y: Value): Value {
    const [out = 1] = this.#to.shapeOf(y).slice(-1)
    const adapter = `${PEFT_PREFIX}${name}`
    const dropped = p === 0 ? x : this.#add({ type: 'dropout', p }, [x])
    const low = this.#add({ type: 'linear', name: `${adapter}.lora_A`, out: rank, bias: false }, [dropped])
    const scaled = this.#add({ type: 'scale', factor: alpha / rank }, [low])
    const high = this.#add({ type: 'linear', name: `${adapter}.lora_B`, out, bias: false, deviation: 0 }, [scaled])
    return this.#add({ type: 'add' }, [y, high])
  }
}

function adapts({ targets }: Lora, name: string): boolean {
  return targets === ALL_LINEAR ? name !== 'lm_head' : targets.some((target) => endsIn(name, target))
}

function endsIn(name: string, end: string): boolean {
  return name === end || name.endsWith(`.${end}`)
}
