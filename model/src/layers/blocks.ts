// How the attributes of blocks are read. What they unfold into is in expand.ts and transformer.ts.

import type { Path } from '@starling-grid/protocol'
import type { Fields } from '../fields.ts'
import type {
  GptLayer,
  GptNames,
  LayerSpec,
  MultiheadAttentionLayer,
  ParallelLayer,
  ResidualLayer,
  ResnetLayer,
  VitLayer,
} from '../spec.ts'
import { RESNET_DEPTHS } from './residual-network.ts'
import { KERNEL, SIZE } from './rule.ts'

/** More branches or blocks than any published network has are a mistake. */
const MAX_BRANCHES = 64
const MAX_BLOCKS = 128
/** Blocks inside blocks: deeper nesting is an attack on the reader. */
export const MAX_NESTING = 8
const GPT_NAMES: GptNames = { tokens: 'wte', positions: 'wpe', block: 'h.{i}', final_norm: 'lnf' }
/** of the hidden layer against the channels in GPT-2 */
const MLP_RATIO = 4
/** of the first stage of published residual networks */
const RESNET_CHANNELS = 64

/** Which list of layers inside a layer: what distinguishes it from its siblings in messages, and its keys. */
export interface InnerLayers {
  readonly at: readonly number[]
  readonly key: Path
}

/** Reads a list of layers that stands inside another layer. */
export type ReadLayers = (json: unknown, inner: InnerLayers) => LayerSpec[]

export function readResidual(fields: Fields, read: ReadLayers): ResidualLayer {
  const layers = read(fields.take('layers'), { at: [], key: ['layers'] })
  const shortcut = fields.take('shortcut')
  return {
    type: 'residual',
    layers,
    ...(shortcut === undefined ? {} : { shortcut: read(shortcut, { at: [layers.length], key: ['shortcut'] }) }),
  }
}

export function readParallel(fields: Fields, read: ReadLayers): ParallelLayer {
  const branches = fields
    .list('branches', MAX_BRANCHES)
    .map((branch, i) => read(branch, { at: [i], key: ['branches', i] }))
  return { type: 'parallel', branches, combine: fields.choice('combine', ['add', 'concat', 'swiglu'], 'add') }
}

export function readMultiheadAttention(fields: Fields): MultiheadAttentionLayer {
  return {
    type: 'multihead_attention',
    name: fields.name('name'),
    heads: fields.integer('heads', SIZE),
    causal: fields.boolean('causal', false),
    bias: fields.boolean('bias', true),
  }
}

export function readGpt(fields: Fields): GptLayer {
  const channels = fields.integer('channels', SIZE)
  return {
    type: 'gpt',
    channels,
    blocks: fields.integer('blocks', { min: 1, max: MAX_BLOCKS }),
    heads: fields.integer('heads', SIZE),
    context: fields.integer('context', SIZE),
    vocab: fields.integer('vocab', SIZE),
    mlp: fields.integer('mlp', { ...SIZE, otherwise: MLP_RATIO * channels }),
    activation: fields.choice('activation', ['gelu', 'gelu_tanh', 'relu', 'silu'], 'gelu_tanh'),
    norm: fields.choice('norm', ['layernorm', 'rmsnorm'], 'layernorm'),
    eps: fields.positive('eps', 1e-5),
    positions: fields.choice('positions', ['learned'], 'learned'),
    attention_bias: fields.boolean('attention_bias', true),
    tied_head: fields.boolean('tied_head', true),
    dropout: fields.fraction('dropout') ?? 0,
    names: readNames(fields),
  }
}

export function readVit(fields: Fields): VitLayer {
  const channels = fields.integer('channels', SIZE)
  return {
    type: 'vit',
    patch: fields.integer('patch', KERNEL),
    channels,
    blocks: fields.integer('blocks', { min: 1, max: MAX_BLOCKS }),
    heads: fields.integer('heads', SIZE),
    mlp: fields.integer('mlp', { ...SIZE, otherwise: MLP_RATIO * channels }),
    classes: fields.integer('classes', SIZE),
    pool: fields.choice('pool', ['class', 'mean'], 'class'),
    eps: fields.positive('eps', 1e-6),
    dropout: fields.fraction('dropout') ?? 0,
  }
}

export function readResnet(fields: Fields): ResnetLayer {
  return {
    type: 'resnet',
    depth: fields.choice('depth', RESNET_DEPTHS, 18),
    channels: fields.integer('channels', { ...SIZE, otherwise: RESNET_CHANNELS }),
    classes: fields.integer('classes', SIZE),
  }
}

function readNames(fields: Fields): GptNames {
  const names = fields.object('names')
  if (names === undefined) return GPT_NAMES
  const block = names.take('block') ?? GPT_NAMES.block
  if (typeof block !== 'string' || !/^[A-Za-z_][A-Za-z0-9_.]{0,40}\{i\}$/.test(block))
    throw names.refuse('block', 'a name that ends in {i}, such as "h.{i}"', block)
  const read = {
    tokens: names.name('tokens', GPT_NAMES.tokens),
    positions: names.name('positions', GPT_NAMES.positions),
    block,
    final_norm: names.name('final_norm', GPT_NAMES.final_norm),
  }
  names.requireAllRead()
  return read
}
