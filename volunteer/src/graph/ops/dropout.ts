// Dropout: random in training, a copy in evaluation.

import type { Op } from './op.ts'

// x (…) → y (…)
export const dropout: Op<'dropout'> = {
  forward: ({ layer: { p }, inputs: [x], y, keys, index }) => [
    { kernel: 'dropout.forward', dims: { size: x.size, node: index, p }, operands: { x, keys, y } },
  ],
  // what was dropped, or scaled, passes its gradient on in the same way
  backward: ({ layer: { p }, y, keys, index }, { dy, dinputs: [dx] }) =>
    dx ? [{ kernel: 'dropout.forward', dims: { size: y.size, node: index, p }, operands: { x: dy, keys, y: dx } }] : [],
  // a copy: the only part of y
  evaluate: ({ inputs: [x], y }) => [
    { kernel: 'concat.forward', dims: { size: x.size, offset: 0, total: x.size }, operands: { x, y } },
  ],
  random: true,
}
