// Convolution through lines, for software adapters (kernels/conv2d-lines.wgsl): what is prepared for its matrix
// products and made of their results. How a product itself is computed comes from the family: conv2d.ts,
// conv2d-subgroup.ts.

import type { Conv2dDims, DerivativeDims, FinishDims } from '../kernels.ts'
import {
  array,
  matrix,
  ofOperand,
  optional,
  roundUp,
  STREAM_WORKGROUP,
  TILE,
  type Pass,
  type Recipe,
} from '../recipe.ts'
import { finishedMatrix, gradientMatrix, withFinish } from './finish.ts'
import { ownRows, type ShareRows } from './row-sharing.ts'

/** A pass that lacks only its bindings. */
export type ProductPass = Omit<Pass, 'bindings'>

const streamPass = { file: 'conv2d-lines', workgroup: STREAM_WORKGROUP } as const

interface ForwardOperands {
  readonly bias?: unknown
  readonly residual?: unknown
  readonly preactivation?: unknown
}

/** x (B, C, H, W), weight (O, C/g, K, K), bias (O,), residual (B, O, H', W') → y (B, O, H', W') */
export function forwardRecipe(
  dims: Conv2dDims & FinishDims,
  lines: Lines,
  product: ProductPass,
  operands: ForwardOperands,
): Recipe {
  const packed = dims.groups * lines.outPadded * lines.tapQuads * 4
  const taps = lines.tapQuads * 4
  const pack: Pass = {
    ...streamPass,
    entryPoint: 'pack_taps',
    constants: lines.constants,
    bindings: [
      array('weight', 'read', dims.out * lines.taps),
      array('packed', 'write', packed, 'vec4f'),
      array('taps', 'write', taps, 'vec4u'),
    ],
    threads: () => packed / 4,
  }
  const bindings = [
    array('packed', 'read', packed, 'vec4f'),
    array('taps', 'read', taps, 'vec4u'),
    array('lines', 'read', lines.elements, 'vec4f'),
    optional('bias', 'read', dims.out, operands.bias),
    ...finishedMatrix('y', {
      rows: lines.capacity * dims.out * dims.outHeight,
      columns: dims.outWidth,
      activation: dims.activation,
      operands,
    }),
  ]
  return {
    scratch: { packed, taps, lines: lines.elements },
    passes: [pack, spreadPass(dims, lines), withFinish({ ...product, bindings }, dims)],
  }
}

/** weight, dy (B, O, H', W'), activated (B, C, H, W) → dx (B, C, H, W) */
export function inputGradientRecipe(dims: Conv2dDims & DerivativeDims, lines: Lines, product: ProductPass): Recipe {
  const { capacity, constants } = lines
  const packed = dims.groups * lines.seersPadded * dims.kernel * lines.out4
  const dlines = capacity * dims.groups * lines.seers * dims.height * lines.line
  const pack: Pass = {
    ...streamPass,
    entryPoint: 'pack_seers',
    constants,
    bindings: [array('weight', 'read', dims.out * lines.taps), array('packed', 'write', packed)],
    threads: () => packed,
  }
  const gather = withFinish(
    {
      ...streamPass,
      entryPoint: 'gather_lines',
      constants,
      bindings: [
        array('dlines', 'read', dlines),
        ...gradientMatrix('dx', {
          rows: capacity * dims.channels * dims.height,
          columns: dims.width,
          derivative: dims.derivative,
        }),
      ],
      threads: (samples) => samples * dims.channels * dims.height * Math.ceil(dims.width / 4),
    },
    dims,
  )
  const bindings = [array('packed', 'read', packed, 'vec4f'), lines.dy, array('dlines', 'write', dlines, 'vec4f')]
  return {
    scratch: { packed, dlines, ...lines.alignedScratch },
    passes: [pack, ...alignPasses(dims, lines), { ...product, bindings }, gather],
  }
}

/**
 * x (B, C, H, W), dy (B, O, H', W') → dweight (O, C/g, K, K), dbias (O,); `splits`: the parts of the sum over samples.
 */
export function parameterGradientRecipe(
  dims: Conv2dDims,
  lines: Lines,
  product: ProductPass,
  { splits, dbias }: { readonly splits: number; readonly dbias: unknown },
): Recipe {
  const partials = matrix('partials', 'write', splits * dims.out, lines.tapsPadded)
  const bindings = [lines.dy, array('lines', 'read', lines.elements, 'vec4f'), partials]
  return {
    scratch: { lines: lines.elements, partials: splits * dims.out * lines.tapsPadded, ...lines.alignedScratch },
    passes: [
      spreadPass(dims, lines),
      ...alignPasses(dims, lines),
      { ...product, bindings },
      sumPartialsPass(dims, { ...lines, splits }, dbias),
    ],
  }
}

/** dweight and dbias += the sum of partials; `taps` and its padding count the bias. */
export function sumPartialsPass(
  dims: Conv2dDims,
  { splits, taps, tapsPadded }: { readonly splits: number; readonly taps: number; readonly tapsPadded: number },
  dbias: unknown,
  share: ShareRows = ownRows,
): Pass {
  const { sharing, invocations } = share({
    steps: splits,
    reads: 1,
    workgroup: STREAM_WORKGROUP,
    rows: (dims.out * tapsPadded) / 4,
  })
  return {
    ...streamPass,
    ...sharing,
    entryPoint: 'sum_partials',
    constants: { OUT: dims.out, TAPS: taps, TAPS_PADDED: tapsPadded, SPLITS: splits },
    bindings: [
      array('partials', 'read', splits * dims.out * tapsPadded, 'vec4f'),
      array('dweight', 'update', dims.out * taps),
      optional('dbias', 'update', dims.out, dbias),
    ],
    threads: () => invocations((dims.out * tapsPadded) / 4),
  }
}

function spreadPass(dims: Conv2dDims, lines: Lines): Pass {
  const plane = lines.rows * lines.quads
  return {
    ...streamPass,
    entryPoint: 'spread',
    constants: lines.constants,
    bindings: [
      array('x', 'read', lines.capacity * dims.channels * dims.height * dims.width),
      array('lines', 'write', lines.elements, 'vec4f'),
    ],
    threads: (samples) => (samples * dims.channels + 1) * plane,
  }
}

/** dy as quads: directly where its lines are whole quads, else through a copy. */
export function alignPasses(dims: Conv2dDims, lines: Lines): Pass[] {
  if (!('aligned' in lines.alignedScratch)) return []
  return [
    {
      ...streamPass,
      entryPoint: 'align',
      constants: lines.constants,
      bindings: [
        ofOperand('dy', matrix('ragged', 'read', lines.capacity * dims.out * dims.outHeight, dims.outWidth)),
        array('aligned', 'write', lines.alignedScratch.aligned, 'vec4f'),
      ],
      threads: (samples) => samples * dims.out * dims.outHeight * lines.quads,
    },
  ]
}

export type Lines = ReturnType<typeof linesOf>

/**
 * Sizes of what is prepared. Passes with equal constants prepare the same scratch, which is shared, whatever the
 * products' tiles.
 */
export function linesOf(dims: Conv2dDims, capacity: number) {
  const { kernel, stride, groups } = dims
  const channelsPerGroup = dims.channels / groups
  const outPerGroup = dims.out / groups
  const quads = Math.ceil(dims.outWidth / 4)
  const line = quads * 4
  const rows = (dims.outHeight - 1) * stride + kernel
  const taps = channelsPerGroup * kernel * kernel
  const tapsPadded = roundUp(taps + 1, 4) // one more for the bias
  const seers = channelsPerGroup * kernel
  const [outPadded, seersPadded, out4] = [roundUp(outPerGroup, TILE), roundUp(seers, TILE), roundUp(outPerGroup, 4)]
  const tapQuads = Math.ceil(taps / 4)
  const lineElements = dims.channels * kernel * rows * line
  const dyElements = capacity * dims.out * dims.outHeight * line
  const isAligned = dims.outWidth === line
  return {
    capacity,
    outPerGroup,
    taps,
    tapsPadded,
    tapQuads,
    seers,
    seersPadded,
    outPadded,
    out4,
    quads,
    line,
    rows,
    dy: ofOperand(isAligned ? 'dy' : 'aligned', array('dy', 'read', dyElements, 'vec4f')),
    /** of the array `lines` */
    elements: capacity * lineElements + rows * line,
    alignedScratch: isAligned ? {} : { aligned: dyElements },
    constants: {
      CHANNELS: dims.channels,
      HEIGHT: dims.height,
      WIDTH: dims.width,
      OUT: dims.out,
      OUT_HEIGHT: dims.outHeight,
      OUT_WIDTH: dims.outWidth,
      KERNEL: kernel,
      STRIDE: stride,
      PADDING: dims.padding,
      GROUPS: groups,
      CHANNELS_PER_GROUP: channelsPerGroup,
      OUT_PER_GROUP: outPerGroup,
      OUT_PADDED: outPadded,
      OUT4: out4,
      TAPS: taps,
      TAPS_PADDED: tapsPadded,
      TAP_QUADS: tapQuads,
      SEERS: seers,
      SEERS_PADDED: seersPadded,
      QUADS: quads,
      IN_QUADS: Math.ceil(dims.width / 4),
      ROWS: rows,
      OUT_QUADS: dims.outHeight * quads,
      ONES: (capacity * lineElements) / 4,
    },
  }
}
