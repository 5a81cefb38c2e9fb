// A vision transformer, unfolded into operators. Source of the form: Dosovitskiy et al., "An Image is Worth 16x16
// Words" (ICLR 2021). Parameters are named and shaped as in timm, so that published weights fit.

import { invalid } from '../fields.ts'
import type { OperatorLayer, VitLayer } from '../spec.ts'
import { requireImage } from './rule.ts'
import { expandAttention, type ExpandedOperators, linear, type Value } from './transformer.ts'

/** Standard deviation of initial weights. */
const DEVIATION = 0.02

// (C, H, W) → (classes,)
export function expandVit(to: ExpandedOperators, layer: VitLayer, image: Value, place: string): Value {
  const { blocks, pool, eps } = layer
  const add = (one: OperatorLayer, x: Value): Value => to.operator(one, [x], place)
  let x = add({ type: 'transpose' }, patches(to, layer, image, place))
  if (pool === 'class') x = add({ type: 'class_token', name: 'cls_token', parameter: 'cls_token', leading: true }, x)
  const [context = 1] = to.shapeOf(x)
  x = add({ type: 'positions', name: 'pos_embed', context, parameter: 'pos_embed', leading: true }, x)
  for (let i = 0; i < blocks; i++) x = expandBlock(to, layer, { x, name: `blocks.${i}`, place })
  const norm = (name: string): OperatorLayer => ({ type: 'layernorm', name, eps, bias: true })
  const pooled =
    pool === 'class'
      ? add({ type: 'first_token' }, add(norm('norm'), x))
      : add(norm('fc_norm'), add({ type: 'globalavgpool' }, add({ type: 'transpose' }, x)))
  return add(linear('head', layer.classes, { bias: true, deviation: DEVIATION }), pooled)
}

function patches(to: ExpandedOperators, { patch, channels }: VitLayer, image: Value, place: string): Value {
  const { height, width } = requireImage(place, to.shapeOf(image))
  if (height % patch !== 0 || width % patch !== 0)
    throw invalid(place, `an image whose sides its patches of ${patch} divide`, `${height} × ${width}`)
  return to.operator(
    {
      type: 'conv2d',
      name: 'patch_embed.proj',
      out: channels,
      kernel: patch,
      stride: patch,
      padding: 0,
      groups: 1,
      bias: true,
    },
    [image],
    place,
  )
}

function expandBlock(
  to: ExpandedOperators,
  { heads, channels, mlp, eps, dropout }: VitLayer,
  { x, name, place }: { readonly x: Value; readonly name: string; readonly place: string },
): Value {
  const add = (one: OperatorLayer, input: Value): Value => to.operator(one, [input], place)
  const norm = (own: string): OperatorLayer => ({ type: 'layernorm', name: `${name}.${own}`, eps, bias: true })
  const drop = (value: Value): Value => (dropout === 0 ? value : add({ type: 'dropout', p: dropout }, value))
  const dense = (own: string, out: number): OperatorLayer =>
    linear(`${name}.${own}`, out, { bias: true, deviation: DEVIATION })
  const attention = { name: `${name}.attn`, heads, causal: false, bias: true, deviation: DEVIATION }
  const attended = expandAttention(to, { ...attention, projectionDeviation: DEVIATION }, add(norm('norm1'), x), place)
  const middle = to.operator({ type: 'add' }, [x, drop(attended)], place)
  const hidden = add({ type: 'gelu' }, add(dense('mlp.fc1', mlp), add(norm('norm2'), middle)))
  return to.operator({ type: 'add' }, [middle, drop(add(dense('mlp.fc2', channels), hidden))], place)
}
