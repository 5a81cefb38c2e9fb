import type { GptLayer } from '@starling-grid/model'
// GPT's forward pass in TensorFlow.js, composed of its operations: it has no layer normalisation, GELU or attention of
// its own.
import * as tf from '@tensorflow/tfjs-core'

type Named = (name: string) => tf.Variable

/** √(2/π) and the cubic's factor of GELU's approximation by tanh */
const [GELU_SCALE, GELU_CUBIC] = [Math.sqrt(2 / Math.PI), 0.044715]
const MASKED = -1e9

/** Tables are looked up by row, so they keep PyTorch's layout. */
export function isTable(name: string): boolean {
  return name === 'wte' || name === 'wpe'
}

// ids (B, T) → logits (B·T, vocab)
export function gptForward(layer: GptLayer, ids: tf.Tensor2D, named: Named): tf.Tensor2D {
  const [samples, length] = ids.shape
  const { channels, blocks, eps } = layer
  const rows = (x: tf.Tensor) => tf.reshape(x, [samples * length, channels]) as tf.Tensor2D
  let x = rows(tf.add(tf.gather(named('wte'), ids), tf.slice(named('wpe'), [0, 0], [length, channels])))
  for (let i = 0; i < blocks; i++) {
    const name = `h.${i}`
    const mixed = attention(layer, linear(norm(x, `${name}.ln1`, eps, named), `${name}.attn.qkv`, named), samples)
    x = tf.add(x, linear(mixed, `${name}.attn.proj`, named))
    x = tf.add(
      x,
      linear(gelu(linear(norm(x, `${name}.ln2`, eps, named), `${name}.mlp.fc`, named)), `${name}.mlp.proj`, named),
    )
  }
  return tf.matMul(norm(x, 'lnf', eps, named), named('wte') as unknown as tf.Tensor2D, false, true)
}

// qkv (B·T, 3C) → (B·T, C)
function attention({ heads, channels }: GptLayer, qkv: tf.Tensor2D, samples: number): tf.Tensor2D {
  const [rows] = qkv.shape
  const [length, size] = [rows / samples, channels / heads]
  const split = tf.transpose(tf.reshape(qkv, [samples, length, 3, heads, size]), [2, 0, 3, 1, 4])
  const [q, k, v] = tf.unstack(split)
  if (!q || !k || !v) throw new Error('no query, key and value')
  const future = tf.sub(1, tf.linalg.bandPart(tf.ones([length, length]), -1, 0))
  const scores = tf.add(tf.mul(tf.matMul(q, k, false, true), 1 / Math.sqrt(size)), tf.mul(future, MASKED))
  return tf.reshape(tf.transpose(tf.matMul(tf.softmax(scores), v), [0, 2, 1, 3]), [rows, channels])
}

function linear(x: tf.Tensor2D, name: string, named: Named): tf.Tensor2D {
  return tf.add(tf.matMul(x, named(`${name}.weight`) as unknown as tf.Tensor2D), named(`${name}.bias`))
}

function norm(x: tf.Tensor2D, name: string, eps: number, named: Named): tf.Tensor2D {
  const { mean, variance } = tf.moments(x, -1, true)
  const standard = tf.mul(tf.sub(x, mean), tf.rsqrt(tf.add(variance, eps)))
  return tf.add(tf.mul(standard, named(`${name}.weight`)), named(`${name}.bias`))
}

function gelu(x: tf.Tensor2D): tf.Tensor2D {
  const inner = tf.mul(tf.add(x, tf.mul(tf.mul(tf.mul(x, x), x), GELU_CUBIC)), GELU_SCALE)
  return tf.mul(tf.mul(x, 0.5), tf.add(tf.tanh(inner), 1))
}
