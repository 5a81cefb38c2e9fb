// The one list of shader files. Hosts read the text: browsers by fetch, Node from disk.
// Each URL is a literal, so that bundlers find the file.

export const KERNEL_URLS = {
  'linear': new URL('../kernels/linear.wgsl', import.meta.url),
  'activations': new URL('../kernels/activations.wgsl', import.meta.url),
  'tile-product': new URL('../kernels/tile-product.wgsl', import.meta.url),
  'linear-shared': new URL('../kernels/linear-shared.wgsl', import.meta.url),
  'conv2d-shared': new URL('../kernels/conv2d-shared.wgsl', import.meta.url),
  'conv2d': new URL('../kernels/conv2d.wgsl', import.meta.url),
  'maxpool2d': new URL('../kernels/maxpool2d.wgsl', import.meta.url),
  'avgpool2d': new URL('../kernels/avgpool2d.wgsl', import.meta.url),
  'globalavgpool': new URL('../kernels/globalavgpool.wgsl', import.meta.url),
  'concat': new URL('../kernels/concat.wgsl', import.meta.url),
  'dropout': new URL('../kernels/dropout.wgsl', import.meta.url),
  'add': new URL('../kernels/add.wgsl', import.meta.url),
  'relu': new URL('../kernels/relu.wgsl', import.meta.url),
  'tanh': new URL('../kernels/tanh.wgsl', import.meta.url),
  'sigmoid': new URL('../kernels/sigmoid.wgsl', import.meta.url),
  'leaky-relu': new URL('../kernels/leaky-relu.wgsl', import.meta.url),
  'gelu': new URL('../kernels/gelu.wgsl', import.meta.url),
  'gelu-tanh': new URL('../kernels/gelu-tanh.wgsl', import.meta.url),
  'silu': new URL('../kernels/silu.wgsl', import.meta.url),
  'softmax': new URL('../kernels/softmax.wgsl', import.meta.url),
  'embedding': new URL('../kernels/embedding.wgsl', import.meta.url),
  'positions': new URL('../kernels/positions.wgsl', import.meta.url),
  'attention': new URL('../kernels/attention.wgsl', import.meta.url),
  'flash-attention': new URL('../kernels/flash-attention.wgsl', import.meta.url),
  'row-norm': new URL('../kernels/row-norm.wgsl', import.meta.url),
  'channel-norm': new URL('../kernels/channel-norm.wgsl', import.meta.url),
  'cross-entropy': new URL('../kernels/cross-entropy.wgsl', import.meta.url),
  'bce-with-logits': new URL('../kernels/bce-with-logits.wgsl', import.meta.url),
  'mse': new URL('../kernels/mse.wgsl', import.meta.url),
  'sgd': new URL('../kernels/sgd.wgsl', import.meta.url),
  'adamw': new URL('../kernels/adamw.wgsl', import.meta.url),
  'sum-of-squares': new URL('../kernels/sum-of-squares.wgsl', import.meta.url),
} as const

export type KernelFile = keyof typeof KERNEL_URLS
