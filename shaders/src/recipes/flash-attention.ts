// Attention over long sequences for software adapters: one query or one key per invocation, nothing of the size T × T.

import type { AttentionDims } from '../kernels.ts'
import { array, matrix, ofOperand, real, STREAM_WORKGROUP, type Pass, type Recipe } from '../recipe.ts'

// qkv (B, T, 3, H, D) → y (B, T, H, D), logSums (B, H, T)
export function flashAttentionForward(dims: AttentionDims, capacity: number): Recipe {
  const { qkv, mixed, rows, pass } = parts(dims, capacity)
  const logSums = ofOperand('logSums', array('log_sums', 'write', rows))
  return { scratch: {}, passes: [{ ...pass, entryPoint: 'forward', bindings: [qkv, mixed('y', 'write'), logSums] }] }
}

// qkv, y, logSums, dy → dqkv (B, T, 3, H, D)
export function flashAttentionBackward(dims: AttentionDims, capacity: number): Recipe {
  const { qkv, dqkv, mixed, rows, pass } = parts(dims, capacity)
  const dy = mixed('dy', 'read')
  const perRow = [ofOperand('logSums', array('log_sums', 'read', rows)), array('dots', 'read', rows)]
  return {
    scratch: { dots: rows },
    passes: [
      dotOutputs(dims, capacity),
      { ...pass, entryPoint: 'query_gradient', bindings: [qkv, dy, ...perRow, dqkv] },
      { ...pass, entryPoint: 'key_value_gradient', bindings: [qkv, dy, ...perRow, dqkv] },
    ],
  }
}

/** Σ dy · y of each query, for the gradients. */
export function dotOutputs(dims: AttentionDims, capacity: number): Pass {
  const { mixed, rows, pass } = parts(dims, capacity)
  return {
    ...pass,
    entryPoint: 'dot_outputs',
    bindings: [mixed('y', 'read'), mixed('dy', 'read'), array('dots', 'write', rows)],
  }
}

function parts(dims: AttentionDims, capacity: number) {
  const { length, heads, headSize, causal } = dims
  const constants = {
    T: length,
    HEADS: heads,
    QUADS: Math.ceil(headSize / 4),
    CAUSAL: causal ? 1 : 0,
    SCALE: real(1 / Math.sqrt(headSize)),
  }
  const pass: Omit<Pass, 'entryPoint' | 'bindings'> = {
    file: 'flash-attention',
    constants,
    workgroup: STREAM_WORKGROUP,
    threads: (samples) => samples * heads * length,
  }
  return { ...attentionBindings(dims, capacity), pass }
}

/** What all its passes read and write. */
export function attentionBindings({ length, heads, headSize }: AttentionDims, capacity: number) {
  const rows = capacity * length * heads
  return {
    qkv: matrix('qkv', 'read', 3 * rows, headSize),
    dqkv: matrix('dqkv', 'write', 3 * rows, headSize),
    mixed: (name: string, access: 'read' | 'write') => matrix(name, access, rows, headSize),
    rows,
  }
}
