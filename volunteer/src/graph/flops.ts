// Floating-point operations of a call, for predictions and rates: two per multiply-add, one per element elsewhere.

import type { ModelSpec } from '@starling-grid/model'
import type { KernelCall } from '@starling-grid/shaders'
import { buildGraph } from './build.ts'
import type { Tensor } from './tensor.ts'

/**
 * What attention multiplies, in products of (length × length) by headSize: forward has two, backward recomputes one and
 * has four.
 */
const ATTENTION_FORWARD_PRODUCTS = 2
const ATTENTION_BACKWARD_PRODUCTS = 5

export function flopsOf(call: KernelCall<Tensor>, samples: number): number {
  switch (call.kernel) {
    case 'linear.forward':
    case 'linear.inputGradient':
    case 'linear.parameterGradient':
      return 2 * samples * call.dims.rows * call.dims.in * call.dims.out
    case 'conv2d.forward':
    case 'conv2d.inputGradient':
    case 'conv2d.parameterGradient': {
      const { channels, groups, kernel, out, outHeight, outWidth } = call.dims
      return 2 * samples * out * outHeight * outWidth * (channels / groups) * kernel * kernel
    }
    case 'attention.forward':
    case 'flash_attention.forward':
      return attentionFlops(call.dims, samples * ATTENTION_FORWARD_PRODUCTS)
    case 'attention.backward':
    case 'flash_attention.backward':
      return attentionFlops(call.dims, samples * ATTENTION_BACKWARD_PRODUCTS)
    default:
      return largest(call, samples)
  }
}

/** Forward, loss and backward of so many samples. */
export function trainingFlops(spec: ModelSpec, samples: number): number {
  const { forward, loss, backward } = buildGraph(spec)
  return [...forward, ...loss, ...backward].reduce((sum, call) => sum + flopsOf(call, samples), 0)
}

function attentionFlops(
  { length, heads, headSize }: { length: number; heads: number; headSize: number },
  products: number,
): number {
  return 2 * products * heads * length * length * headSize
}

function largest({ operands }: KernelCall<Tensor>, samples: number): number {
  const tensors = Object.values(operands as Readonly<Record<string, Tensor | undefined>>)
  return Math.max(
    0,
    ...tensors.map((tensor) => (tensor === undefined ? 0 : tensor.size * (tensor.shared ? 1 : samples))),
  )
}
