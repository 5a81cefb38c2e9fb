// Published language models in the forms that PyTorch's cases do not show, against a decoder in double precision that
// shares no code with the engine.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  type FixedEntry,
  fixedEntries,
  type ModelSpec,
  type ParameterEntry,
  parameterLayout,
  parseModelSpec,
} from '@starling-grid/model'
import { openReferenceExecutor } from '../src/cpu/executor.ts'
import { noise } from '../testing/executor-suite.ts'
import { type PlainConfig, plainLogits, plainLoss, type Weights } from '../testing/plain-decoder.ts'

const LENGTH = 7
const RANK = 3
const ALPHA = 5
const BASE: PlainConfig = {
  model_type: 'llama',
  vocab_size: 19,
  hidden_size: 16,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 4,
  intermediate_size: 11,
  rms_norm_eps: 1e-5,
  rope_theta: 10_000,
  tie_word_embeddings: true,
}
const LLAMA3 = {
  rope_type: 'llama3',
  factor: 8,
  low_freq_factor: 1,
  high_freq_factor: 4,
  original_max_position_embeddings: 16,
}

const CASES: readonly (readonly [what: string, config: PlainConfig])[] = [
  ['qwen2, with biases of queries, keys and values', { ...BASE, model_type: 'qwen2', rope_theta: 1e6 }],
  ['one head of keys and values', { ...BASE, num_key_value_heads: 1 }],
  ['a head of its own', { ...BASE, tie_word_embeddings: false }],
  ['another base of the angles', { ...BASE, rope_theta: 500 }],
  ['angles that are stretched evenly', { ...BASE, rope_scaling: { rope_type: 'linear', factor: 2.5 } }],
  ['angles as Llama 3 stretches them', { ...BASE, head_dim: 12, rope_scaling: LLAMA3, rope_theta: 50 }],
  ['heads wider than the channels, norms of queries and keys', { ...BASE, model_type: 'qwen3', head_dim: 6 }],
  ['biases everywhere', { ...BASE, attention_bias: true }],
]

interface Prepared {
  readonly spec: ModelSpec
  readonly parameters: Float32Array
  readonly frozen: (name: string) => Float32Array
  readonly weights: Weights
}

function prepared(config: PlainConfig, lora: boolean): Prepared {
  const adapters = lora ? { lora: { rank: RANK, alpha: ALPHA } } : {}
  const spec = parseModelSpec({
    input: [LENGTH],
    layers: [{ type: 'causal_lm', config, ...adapters }],
    ignore_index: -100,
  })
  const layout = parameterLayout(spec)
  const fixed = fixedEntries(spec).filter(({ kind }) => kind === 'frozen')
  const all: readonly (ParameterEntry | FixedEntry)[] = [...layout.entries, ...fixed]
  const values = new Map(
    all.map(({ name, length }, i) => {
      const around = name.includes('norm') ? 1 : 0
      return [name, noise(length, i).map((value) => around + 0.3 * value)] as const
    }),
  )
  const parameters = new Float32Array(layout.total)
  for (const { name, offset } of layout.entries) parameters.set(values.get(name) ?? [], offset)
  const frozen = (name: string) => values.get(name) ?? new Float32Array()
  const weights = (name: string) => (values.has(name) ? Float64Array.from(frozen(name)) : undefined)
  return { spec, parameters, frozen, weights }
}

const IDS = [3, 17, 0, 8, 8, 1, 12]
const LABELS = [-100, -100, 4, 18, 1, -100, 0]

/** How far apart two vectors are, relative to the second. */
function apart(ours: ArrayLike<number>, wanted: ArrayLike<number>): number {
  assert.equal(ours.length, wanted.length)
  const norm = (of: ArrayLike<number>) => Math.hypot(...Array.from(of))
  return norm(Array.from(ours, (value, i) => value - (wanted[i] ?? 0))) / norm(wanted)
}

for (const [what, config] of CASES)
  for (const lora of [false, true])
    test(`${lora ? 'adapters on every linear layer of ' : ''}${what}`, async () => {
      const { spec, parameters, frozen, weights } = prepared(config, lora)
      const executor = await openReferenceExecutor(spec, { frozen: { read: async (name) => frozen(name) } })
      executor.loadParameters(parameters)
      const scale = lora ? ALPHA / RANK : 0
      const wanted = plainLogits(config, weights, IDS, scale)
      const logits = await executor.predict(Int32Array.from(IDS), 1)
      assert.ok(apart(logits, wanted.flat()) < 1e-5, `logits ${apart(logits, wanted.flat())}`)

      const gradient = new Float32Array(parameters.length)
      const batch = { samples: 1, x: Int32Array.from(IDS), y: Int32Array.from(LABELS) }
      const { lossSum, targets } = await executor.gradient(batch, gradient)
      assert.equal(targets, LABELS.filter((label) => label >= 0).length)
      assert.ok(Math.abs(lossSum - plainLoss(wanted, LABELS)) < 1e-4)
      checkGradient({ config, spec, weights, scale, gradient })
    })

/** Along one direction for each tensor, by central differences in double precision. */
function checkGradient({
  config,
  spec,
  weights,
  scale,
  gradient,
}: {
  readonly config: PlainConfig
  readonly spec: ModelSpec
  readonly weights: Weights
  readonly scale: number
  readonly gradient: Float32Array
}): void {
  const step = 1e-4
  for (const { name, offset, length } of parameterLayout(spec).entries) {
    const direction = noise(length, 77)
    const at = (sign: number) => {
      const moved: Weights = (asked) => {
        const values = weights(asked)
        return asked === name ? values?.map((value, i) => value + sign * step * (direction[i] ?? 0)) : values
      }
      return plainLoss(plainLogits(config, moved, IDS, scale), LABELS)
    }
    const wanted = (at(1) - at(-1)) / (2 * step)
    const ours = gradient
      .subarray(offset, offset + length)
      .reduce((sum, value, i) => sum + value * (direction[i] ?? 0), 0)
    const size = Math.hypot(...gradient.subarray(offset, offset + length)) * Math.hypot(...direction)
    assert.ok(Math.abs(ours - wanted) <= 1e-4 * size + 1e-7, `${name}: ${ours}, differences say ${wanted}`)
  }
}

test('only adapters travel: they have the names of PEFT, all else those of the published file', () => {
  const { spec } = prepared({ ...BASE, tie_word_embeddings: false }, true)
  const names = parameterLayout(spec).entries.map(({ name }) => name)
  assert.equal(names.length, 2 * 7 * 2)
  assert.ok(
    names.every((name) =>
      /^base_model\.model\.model\.layers\.\d\.(self_attn|mlp)\.\w+_proj\.lora_[AB]\.weight$/.test(name),
    ),
  )
  const fixed = fixedEntries(spec).filter(({ kind }) => kind === 'frozen')
  assert.ok(fixed.some(({ name }) => name === 'lm_head.weight'))
  assert.ok(fixed.some(({ name }) => name === 'model.layers.1.mlp.down_proj.weight'))
})

const refused = (config: object, lora?: object): string => {
  try {
    parseModelSpec({ input: [LENGTH], layers: [{ type: 'causal_lm', config, ...(lora ? { lora } : {}) }] })
    return 'taken'
  } catch (error) {
    return String((error as Error).message)
  }
}

test('what this program would compute wrongly is refused', () => {
  assert.equal(refused(BASE), 'taken')
  assert.match(refused({ ...BASE, model_type: 'mamba' }), /`model_type` to be one of llama, qwen2, qwen3, gpt2/)
  assert.match(refused({ ...BASE, rope_scaling: { rope_type: 'yarn', factor: 2 } }), /one of default, linear, llama3/)
  assert.match(refused({ ...BASE, use_sliding_window: true }), /sees all earlier tokens/)
  assert.match(refused({ ...BASE, num_key_value_heads: 3 }), /heads divisible by its 3 heads of keys and values/)
  assert.match(refused({ ...BASE, head_dim: 5 }), /heads of an even size/)
  assert.match(refused({ ...BASE, hidden_act: 'gelu' }), /`hidden_act` to be one of silu/)
  assert.match(refused({ ...BASE, max_position_embeddings: 4 }), /a context of at most 4 tokens/)
  assert.match(refused(BASE, { rank: 4, targets: ['q_prj'] }), /among its linear layers q_proj, k_proj.* gets q_prj/)
  assert.match(refused(BASE, { rank: 4, targets: ['lm_head'] }), /gets lm_head/)
})
