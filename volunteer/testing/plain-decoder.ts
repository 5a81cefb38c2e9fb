// A published language model in double precision, written down once more from its papers and sharing no code with the
// engine: what tests take for the truth where PyTorch's cases say nothing. Slow; for a few dozen channels.

interface PlainAttention {
  readonly num_attention_heads: number
  readonly num_key_value_heads: number
  readonly head_dim: number
  readonly attention_bias?: boolean
  readonly rope_theta: number
  readonly rope_scaling?: Readonly<Record<string, number | string>>
}

export interface PlainConfig extends PlainAttention {
  readonly model_type: 'llama' | 'qwen2' | 'qwen3'
  readonly vocab_size: number
  readonly hidden_size: number
  readonly num_hidden_layers: number
  readonly intermediate_size: number
  readonly rms_norm_eps: number
  readonly tie_word_embeddings: boolean
}

/** Weights by their published names. */
export type Weights = (name: string) => Float64Array | undefined

type Vector = readonly number[]

/**
 * Logits of each position, for one sequence. `adapter`: scale of low-rank adapters; their weights have PEFT's names.
 */
export function plainLogits(config: PlainConfig, weights: Weights, ids: readonly number[], adapter = 0): Vector[] {
  const size = config.hidden_size
  const table = need(weights, 'model.embed_tokens.weight')
  let rows = ids.map((id): Vector => [...table.slice(id * size, (id + 1) * size)])
  const apply = (name: string, x: Vector): Vector => project(weights, name, x, adapter)
  for (let i = 0; i < config.num_hidden_layers; i++) {
    const block = `model.layers.${i}`
    const before = rows.map((x) => rms(x, need(weights, `${block}.input_layernorm.weight`), config.rms_norm_eps))
    const mixed = attend(config, weights, `${block}.self_attn`, before, apply)
    rows = rows.map((x, t) => plus(x, apply(`${block}.self_attn.o_proj`, mixed[t] ?? [])))
    rows = rows.map((x) => {
      const normed = rms(x, need(weights, `${block}.post_attention_layernorm.weight`), config.rms_norm_eps)
      const up = apply(`${block}.mlp.up_proj`, normed)
      const gated = apply(`${block}.mlp.gate_proj`, normed).map((g, c) => (g / (1 + Math.exp(-g))) * (up[c] ?? 0))
      return plus(x, apply(`${block}.mlp.down_proj`, gated))
    })
  }
  const head = config.tie_word_embeddings ? 'model.embed_tokens' : 'lm_head'
  return rows.map((x) => apply(head, rms(x, need(weights, 'model.norm.weight'), config.rms_norm_eps)))
}

// oxlint-disable-next-line max-params -- a plain formula
function attend(
  config: PlainConfig,
  weights: Weights,
  name: string,
  rows: readonly Vector[],
  apply: (name: string, x: Vector) => Vector,
): Vector[] {
  const { head_dim: size, num_attention_heads: heads, num_key_value_heads: kvHeads } = config
  const headOf = (x: Vector, head: number): Vector => x.slice(head * size, (head + 1) * size)
  const normed = (part: string, x: Vector): Vector =>
    config.model_type === 'qwen3' ? rms(x, need(weights, `${name}.${part}_norm.weight`), config.rms_norm_eps) : x
  const [q, k, v] = ['q_proj', 'k_proj', 'v_proj'].map((part) => rows.map((x) => apply(`${name}.${part}`, x)))
  return rows.map((_, t) =>
    Array.from({ length: heads }, (__, head) => {
      const shared = Math.floor((head * kvHeads) / heads)
      const query = turn(config, normed('q', headOf(q?.[t] ?? [], head)), t)
      const scores = Array.from({ length: t + 1 }, (___, s) => {
        const key = turn(config, normed('k', headOf(k?.[s] ?? [], shared)), s)
        return query.reduce((sum, value, c) => sum + value * (key[c] ?? 0), 0) / Math.sqrt(size)
      })
      const shares = scores.map((score) => Math.exp(score))
      const total = shares.reduce((sum, share) => sum + share, 0)
      return Array.from({ length: size }, (___, c) =>
        shares.reduce((sum, share, s) => sum + (share / total) * (headOf(v?.[s] ?? [], shared)[c] ?? 0), 0),
      )
    }).flat(),
  )
}

/** Each pair (c, c + half) is a complex number, multiplied by e^(i · t · frequency). */
function turn(config: PlainConfig, x: Vector, t: number): Vector {
  const half = x.length / 2
  const angle = (c: number): number => t * frequency(config, config.rope_theta ** (-c / half))
  return x.map((value, c) => {
    const a = angle(c % half)
    const other = x[(c + half) % x.length] ?? 0
    return c < half ? value * Math.cos(a) - other * Math.sin(a) : value * Math.cos(a) + other * Math.sin(a)
  })
}

function frequency({ rope_scaling: scaling }: PlainConfig, plain: number): number {
  if (scaling === undefined) return plain
  const of = (key: string): number => Number(scaling[key])
  if (scaling['rope_type'] === 'linear') return plain / of('factor')
  const wave = (2 * Math.PI) / plain
  const context = of('original_max_position_embeddings')
  if (wave < context / of('high_freq_factor')) return plain
  if (wave > context / of('low_freq_factor')) return plain / of('factor')
  const smooth = (context / wave - of('low_freq_factor')) / (of('high_freq_factor') - of('low_freq_factor'))
  return ((1 - smooth) * plain) / of('factor') + smooth * plain
}

function rms(x: Vector, weight: Float64Array, eps: number): Vector {
  const mean = x.reduce((sum, value) => sum + value * value, 0) / x.length
  return x.map((value, c) => (value / Math.sqrt(mean + eps)) * (weight[c] ?? 0))
}

// oxlint-disable-next-line max-params -- a plain formula
function project(weights: Weights, name: string, x: Vector, adapter: number): Vector {
  const y = times(need(weights, `${name}.weight`), x)
  const bias = weights(`${name}.bias`)
  const a = weights(`base_model.model.${name}.lora_A.weight`)
  const b = weights(`base_model.model.${name}.lora_B.weight`)
  const added = a && b ? times(b, times(a, x)) : undefined
  return y.map((value, r) => value + (bias?.[r] ?? 0) + adapter * (added?.[r] ?? 0))
}

function times(matrix: Float64Array, x: Vector): Vector {
  return Array.from({ length: matrix.length / x.length }, (_, row) =>
    x.reduce((sum, value, c) => sum + value * (matrix[row * x.length + c] ?? 0), 0),
  )
}

function plus(a: Vector, b: Vector): Vector {
  return a.map((value, i) => value + (b[i] ?? 0))
}

function need(weights: Weights, name: string): Float64Array {
  const found = weights(name)
  if (!found) throw new Error(`the test has no ${name}`)
  return found
}

/** Σ −ln softmax(logits)[label] over the labels that are not ignored. */
export function plainLoss(logits: readonly Vector[], labels: readonly number[], ignored = -100): number {
  return logits.reduce((sum, row, t) => {
    const label = labels[t] ?? ignored
    if (label === ignored) return sum
    const total = row.reduce((all, value) => all + Math.exp(value), 0)
    return sum + Math.log(total) - (row[label] ?? 0)
  }, 0)
}
