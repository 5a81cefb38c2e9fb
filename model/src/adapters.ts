// Adapters as other programs take them: PEFT's configuration beside their tensors, or merged into the model that they
// were trained beside, under the names of its published files. Pure.

import { PEFT_PREFIX } from './layers/causal-lm.ts'
import { fixedEntries, type FixedEntry, type ParameterEntry, parameterLayout } from './param-layout.ts'
import { publishedShape, toPublished } from './published.ts'
import type { CausalLmConfig, CausalLmLayer, Lora, ModelSpec } from './spec.ts'

/** The language model that a spec is; undefined: it is another. */
export function tunedParts({ layers: [layer, ...more] }: ModelSpec): CausalLmLayer | undefined {
  return layer?.type === 'causal_lm' && more.length === 0 ? layer : undefined
}

/** `adapter_config.json`, as `peft` reads it. */
export function adapterConfig(spec: ModelSpec, lora: Lora, base: string): object {
  const family = tunedParts(spec)?.config.model_type
  return {
    peft_type: 'LORA',
    task_type: 'CAUSAL_LM',
    base_model_name_or_path: base,
    r: lora.rank,
    lora_alpha: lora.alpha,
    lora_dropout: lora.dropout,
    target_modules: targetModules(spec),
    bias: 'none',
    fan_in_fan_out: family === 'gpt2',
    inference_mode: true,
    init_lora_weights: true,
    modules_to_save: null,
    use_rslora: false,
    use_dora: false,
  }
}

/** Last parts of the names of the layers that have adapters. */
function targetModules(spec: ModelSpec): string[] {
  const names = parameterLayout(spec).entries.map(({ name }) => name.replace(/\.lora_[AB]\.weight$/, ''))
  return [...new Set(names.map((name) => name.slice(name.lastIndexOf('.') + 1)))].sort()
}

export interface PublishedTensorValues {
  readonly name: string
  readonly shape: readonly number[]
  /** in the order of the shape */
  values(): Promise<Float32Array>
}

/**
 * The whole model under the names of its published files, one tensor at a time. `read`: the frozen parameter of a name.
 * Without adapters: the parameters as they are.
 */
export function mergedTensors(
  spec: ModelSpec,
  parameters: Float32Array,
  read: (name: string) => Promise<Float32Array>,
): PublishedTensorValues[] {
  const lora = tunedParts(spec)?.lora
  const { entries } = parameterLayout(spec)
  const own = new Map(entries.map((entry) => [entry.name, entry]))
  const valuesOf = ({ offset, length }: ParameterEntry) => parameters.subarray(offset, offset + length)
  const fixed = fixedEntries(spec).filter(({ kind }) => kind === 'frozen')
  const merged = async (entry: FixedEntry): Promise<Float32Array> => {
    const values = await read(entry.name)
    const adapter = PEFT_PREFIX + entry.name.replace(/\.weight$/, '')
    const [a, b] = [own.get(`${adapter}.lora_A.weight`), own.get(`${adapter}.lora_B.weight`)]
    if (lora === undefined || a === undefined || b === undefined) return toPublished(entry, values)
    return toPublished(entry, sum(values, { a: valuesOf(a), b: valuesOf(b), lora, columns: entry.shape.at(-1) ?? 1 }))
  }
  if (lora !== undefined || fixed.length > 0)
    return fixed.map((entry) => ({ name: entry.name, shape: publishedShape(entry), values: () => merged(entry) }))
  return entries.map((entry) => ({
    name: entry.name,
    shape: publishedShape(entry),
    values: async () => toPublished(entry, valuesOf(entry)),
  }))
}

// W + alpha/rank · B·A
function sum(
  weight: Float32Array,
  { a, b, lora, columns }: { a: Float32Array; b: Float32Array; lora: Lora; columns: number },
): Float32Array {
  const { rank, alpha } = lora
  const merged = Float64Array.from(weight)
  for (let row = 0; row < b.length / rank; row++)
    for (let r = 0; r < rank; r++) {
      const factor = ((b[row * rank + r] ?? 0) * alpha) / rank
      for (let c = 0; c < columns; c++)
        merged[row * columns + c] = (merged[row * columns + c] ?? 0) + factor * (a[r * columns + c] ?? 0)
    }
  return Float32Array.from(merged)
}

const ARCHITECTURES = {
  llama: 'LlamaForCausalLM',
  qwen2: 'Qwen2ForCausalLM',
  qwen3: 'Qwen3ForCausalLM',
  gpt2: 'GPT2LMHeadModel',
} as const

/** `config.json` of a merged model. */
export function publishedConfig(config: CausalLmConfig): object {
  const { eps, output_bias: _, mlp_bias: mlpBias, attention_bias: attentionBias, hidden_act: act, ...rest } = config
  const common = { architectures: [ARCHITECTURES[config.model_type]], torch_dtype: 'float32' }
  if (config.model_type === 'gpt2')
    return {
      ...common,
      model_type: 'gpt2',
      vocab_size: config.vocab_size,
      n_embd: config.hidden_size,
      n_layer: config.num_hidden_layers,
      n_head: config.num_attention_heads,
      n_positions: config.max_position_embeddings,
      n_inner: config.intermediate_size,
      layer_norm_epsilon: eps,
      activation_function: act === 'gelu_tanh' ? 'gelu_new' : act,
      tie_word_embeddings: config.tie_word_embeddings,
    }
  const biases = config.model_type === 'llama' || config.model_type === 'qwen3' ? { attention_bias: attentionBias } : {}
  return {
    ...common,
    ...rest,
    hidden_act: act,
    rms_norm_eps: eps,
    ...biases,
    ...(config.model_type === 'llama' ? { mlp_bias: mlpBias } : {}),
  }
}
