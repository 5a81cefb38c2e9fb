// Losses. `target` is a reserved word of WGSL.

import { type CrossEntropyDims, type CrossEntropyPieceDims, type ElementwiseDims, PIECE_STATE } from '../kernels.ts'
import { array, matrix, ofOperand, optional, real, STREAM_WORKGROUP, TILE_WORKGROUP, type Recipe } from '../recipe.ts'
import type { MakeRecipe } from '../variants.ts'
import { ownRows, sharedRows, type ShareRows } from './row-sharing.ts'

/** From here on a row is worth more than one invocation: its maximum alone is as much reading as a layer's product. */
const MANY_CLASSES = 2048
/** Classes that one invocation then looks at. */
const PART = 512

// x (R, classes), target (R,) → loss (R,), correct (R,), dx (R, classes)
export function crossEntropyLoss(dims: CrossEntropyDims, capacity: number): Recipe {
  return dims.classes < MANY_CLASSES ? rowByRow(ownRows, dims, capacity) : partByPart(dims, capacity)
}

/** As crossEntropyLoss, by a workgroup for each row, however many classes there are. */
export function crossEntropyLossShared(dims: CrossEntropyDims, capacity: number): Recipe {
  return rowByRow(sharedRows, dims, capacity)
}

function rowByRow(share: ShareRows, dims: CrossEntropyDims, capacity: number): Recipe {
  const { pass, x, labels, sums, dx } = crossEntropyParts(dims, capacity)
  const { sharing, invocations } = share({ steps: Math.ceil(dims.classes / 4), reads: 3, workgroup: TILE_WORKGROUP })
  const bindings = [x, labels, ...sums, dx]
  const threads = (samples: number) => invocations(samples * dims.rows)
  return { scratch: {}, passes: [{ ...pass, entryPoint: 'loss_and_gradient', ...sharing, bindings, threads }] }
}

function partByPart(dims: CrossEntropyDims, capacity: number): Recipe {
  const { pass, rows, x, labels, sums, dx } = crossEntropyParts(dims, capacity)
  const partCount = Math.ceil(dims.classes / PART)
  const quads = Math.ceil(dims.classes / 4)
  const constants = { ...pass.constants, PART, PARTS: partCount, QUADS: quads }
  const common = { ...pass, constants, workgroup: STREAM_WORKGROUP }
  const length = rows * partCount * 4
  return {
    scratch: { parts: length, log_sums: rows },
    passes: [
      {
        ...common,
        entryPoint: 'look_at_part',
        bindings: [x, array('parts', 'write', length, 'vec4f')],
        threads: (samples) => samples * dims.rows * partCount,
      },
      {
        ...common,
        entryPoint: 'join_parts',
        bindings: [x, labels, array('parts', 'read', length, 'vec4f'), ...sums, array('log_sums', 'write', rows)],
        threads: (samples) => samples * dims.rows,
      },
      {
        ...common,
        entryPoint: 'gradient',
        bindings: [x, labels, array('log_sums', 'read', rows), dx],
        threads: (samples) => samples * dims.rows * quads,
      },
    ],
  }
}

// logits (R, classes), target (R,), before (R, 8) → state (R, 8)
export function crossEntropyLook(share: ShareRows): MakeRecipe<'cross_entropy.look'> {
  return (dims, capacity, { before }) => {
    const { pass, rows, x, labels } = crossEntropyParts(dims, capacity)
    const { sharing, invocations } = share({ steps: Math.ceil(dims.classes / 4), reads: 1, workgroup: TILE_WORKGROUP })
    const length = rows * PIECE_STATE
    const bindings = [
      ofOperand('logits', x),
      labels,
      optional('before', 'read', length, before),
      array('state', 'write', length),
    ]
    const threads = (samples: number) => invocations(samples * dims.rows)
    return { scratch: {}, passes: [{ ...pass, entryPoint: 'look_at_piece', ...sharing, bindings, threads }] }
  }
}

// state (R, 8), target (R,) → loss (R,), correct (R,), logSums (R,)
export function crossEntropyJoin(dims: CrossEntropyDims, capacity: number): Recipe {
  const { pass, rows, labels, sums } = crossEntropyParts(dims, capacity)
  const bindings = [
    array('state', 'read', rows * PIECE_STATE),
    labels,
    ...sums,
    ofOperand('logSums', array('log_sums', 'write', rows)),
  ]
  const threads = (samples: number) => samples * dims.rows
  return {
    scratch: {},
    passes: [{ ...pass, entryPoint: 'join_pieces', workgroup: STREAM_WORKGROUP, bindings, threads }],
  }
}

// logits (R, classes), target (R,), logSums (R,) → dx (R, classes)
export function crossEntropyGradient(dims: CrossEntropyPieceDims, capacity: number): Recipe {
  const { pass, rows, x, labels, dx } = crossEntropyParts(dims, capacity)
  const quads = Math.ceil(dims.classes / 4)
  const bindings = [ofOperand('logits', x), labels, ofOperand('logSums', array('log_sums', 'read', rows)), dx]
  return {
    scratch: {},
    passes: [
      {
        ...pass,
        constants: { ...pass.constants, QUADS: quads },
        entryPoint: 'gradient',
        workgroup: STREAM_WORKGROUP,
        bindings,
        threads: (samples) => samples * dims.rows * quads,
      },
    ],
  }
}

function crossEntropyParts(dims: CrossEntropyDims & Partial<CrossEntropyPieceDims>, capacity: number) {
  const { rows: perSample, classes, smoothing = 0, ignored, first = 0, all = classes } = dims
  const rows = capacity * perSample
  // labels are compared as u32: a negative one by its two's complement
  const constants = {
    ROWS: perSample,
    CLASSES: classes,
    FIRST: first,
    ALL: all,
    SMOOTHING: real(smoothing),
    IGNORING: ignored === undefined ? 0 : 1,
    IGNORED: (ignored ?? 0) >>> 0,
  }
  return {
    rows,
    pass: { file: 'cross-entropy', constants } as const,
    x: matrix('x', 'read', rows, classes),
    labels: ofOperand('target', array('labels', 'read', rows, 'i32')),
    sums: [array('loss', 'write', rows), array('correct', 'write', rows)],
    dx: matrix('dx', 'write', rows, classes),
  }
}

// x, target (B, size) → loss (B,), dx (B, size)
export function mseLoss(share: ShareRows): MakeRecipe<'mse.loss'> {
  return (dims, capacity) => perSample(share, 'mse', dims, capacity)
}

// x, target (B, size) → loss (B,), correct (B,), dx (B, size)
export function bceWithLogitsLoss(share: ShareRows): MakeRecipe<'bce_with_logits.loss'> {
  return (dims, capacity) => perSample(share, 'bce-with-logits', dims, capacity)
}

function perSample(
  share: ShareRows,
  file: 'mse' | 'bce-with-logits',
  { size }: ElementwiseDims,
  capacity: number,
): Recipe {
  const { sharing, invocations } = share({ steps: size, reads: 2, workgroup: TILE_WORKGROUP })
  const bindings = [
    array('x', 'read', capacity * size),
    ofOperand('target', array('wanted', 'read', capacity * size)),
    array('loss', 'write', capacity),
    ...(file === 'bce-with-logits' ? [array('correct', 'write', capacity)] : []),
    array('dx', 'write', capacity * size),
  ]
  return {
    scratch: {},
    passes: [
      {
        file,
        entryPoint: 'loss_and_gradient',
        constants: { SIZE: size },
        ...sharing,
        bindings,
        threads: (samples) => invocations(samples),
      },
    ],
  }
}
