// Linear layer through subgroups, for software adapters (kernels/linear-subgroup.wgsl). Each product comes in two ways:
// the left operand is joint to a subgroup, or the right one.

import type { LinearDims } from '../kernels.ts'
import { matrix, optional, type MatrixBinding, type Pass } from '../recipe.ts'
import type { MakeRecipe, Variant } from '../variants.ts'
import { finishedMatrix, gradientMatrix, withFinish } from './finish.ts'
import { biasPasses, weightGradientTarget } from './linear.ts'
import {
  SUBGROUP_TILES,
  subgroupCount,
  subgroupTileFits,
  subgroupTileName,
  subgroupTileSuits,
  type SubgroupProduct,
  type SubgroupTile,
} from './subgroup-tiles.ts'
import { BUSY_GROUPS, lastQuad, splitSum, type Split } from './tiles.ts'

/** A tile, and which operand its subgroups have jointly. */
interface SubgroupWay {
  readonly tile: SubgroupTile
  readonly joint: 'left' | 'right'
}

const WAYS: readonly SubgroupWay[] = (['right', 'left'] as const).flatMap((joint) =>
  SUBGROUP_TILES.map((tile) => ({ tile, joint })),
)

/** M and N of a product. */
interface Size {
  readonly m: number
  readonly n: number
}

const forwardSize = ({ rows, out }: LinearDims, capacity: number): Size => ({ m: capacity * rows, n: out })
const inputGradientSize = (dims: LinearDims, capacity: number): Size => ({ m: capacity * dims.rows, n: dims.in })
const weightGradientSize = (dims: LinearDims): Size => ({ m: dims.out, n: dims.in })

export const LINEAR_FORWARD_SUBGROUP: readonly Variant<'linear.forward'>[] = variants(forward, forwardSize)
export const LINEAR_INPUT_GRADIENT_SUBGROUP: readonly Variant<'linear.inputGradient'>[] = variants(
  inputGradient,
  inputGradientSize,
)
export const LINEAR_PARAMETER_GRADIENT_SUBGROUP: readonly Variant<'linear.parameterGradient'>[] = variants(
  parameterGradient,
  weightGradientSize,
)

function variants<K extends 'linear.forward' | 'linear.inputGradient' | 'linear.parameterGradient'>(
  make: (way: SubgroupWay) => MakeRecipe<K>,
  sizeOf: (dims: LinearDims, capacity: number) => Size,
) {
  return WAYS.map((way) => ({
    family: 'subgroup' as const,
    name: `${subgroupTileName(way.tile)} ${way.joint}`,
    recipe: make(way),
    fits: subgroupTileFits(way.tile),
    suits: (dims: LinearDims, capacity: number) => {
      const size = sizeOf(dims, capacity)
      return subgroupTileSuits(
        way.tile,
        productOf(way, size),
        (['left', 'right'] as const).map((joint) => productOf({ ...way, joint }, size)),
      )
    },
  }))
}

function productOf({ joint }: SubgroupWay, { m, n }: Size, batch = 1): SubgroupProduct {
  return joint === 'left' ? { rows: m, columns: n, batch } : { rows: n, columns: m, batch }
}

function forward(way: SubgroupWay): MakeRecipe<'linear.forward'> {
  return (dims, capacity, operands) => {
    const rows = capacity * dims.rows
    const product = productPass(way, {
      ...forwardSize(dims, capacity),
      k: dims.in,
      sampleM: dims.rows,
      left: matrix('x', 'read', rows, dims.in),
      right: matrix('weight', 'read', dims.out, dims.in),
    })
    const bindings = [
      ...product.bindings,
      optional('bias', 'read', dims.out, operands.bias),
      ...finishedMatrix('result', { rows, columns: dims.out, activation: dims.activation, operands }),
    ]
    return { scratch: {}, passes: [withFinish({ ...product, bindings }, dims)] }
  }
}

function inputGradient(way: SubgroupWay): MakeRecipe<'linear.inputGradient'> {
  return (dims, capacity) => {
    const rows = capacity * dims.rows
    const product = productPass(way, {
      ...inputGradientSize(dims, capacity),
      k: dims.out,
      sampleM: dims.rows,
      rightRowsK: true,
      left: matrix('dy', 'read', rows, dims.out),
      right: matrix('weight', 'read', dims.out, dims.in),
    })
    return {
      scratch: {},
      passes: [
        withFinish(
          withResult(product, gradientMatrix('result', { rows, columns: dims.in, derivative: dims.derivative })),
          dims,
        ),
      ],
    }
  }
}

function parameterGradient(way: SubgroupWay): MakeRecipe<'linear.parameterGradient'> {
  return (dims, capacity, operands) => {
    const rows = capacity * dims.rows
    const size = weightGradientSize(dims)
    const split = splitSum(rows, {
      pieces: subgroupCount(way.tile, productOf(way, size)),
      wanted: BUSY_GROUPS,
      slab: 4,
    })
    const { target, scratch, sumPasses } = weightGradientTarget(dims, split, { name: 'result' })
    const product = productPass(way, {
      ...size,
      k: rows,
      sampleK: dims.rows,
      leftRowsK: true,
      rightRowsK: true,
      split,
      left: matrix('dy', 'read', rows, dims.out),
      right: matrix('x', 'read', rows, dims.in),
    })
    return { scratch, passes: [withResult(product, [target]), ...sumPasses, ...biasPasses(dims, capacity, operands)] }
  }
}

function withResult(pass: Pass, result: readonly MatrixBinding[]): Pass {
  return { ...pass, bindings: [...pass.bindings, optional('bias', 'read', 1, undefined), ...result] }
}

/**
 * result (M, N) = left (M, k) · right (k, N); sampleM, sampleK: of one sample, where m or k follows the number of
 * samples.
 */
interface JointProduct extends Size {
  readonly k: number
  readonly sampleM?: number
  readonly sampleK?: number
  readonly left: MatrixBinding
  readonly right: MatrixBinding
  readonly leftRowsK?: boolean
  readonly rightRowsK?: boolean
  readonly split?: Split
}

function productPass(way: SubgroupWay, product: JointProduct): Pass {
  const { m, n, k, sampleM = 0, sampleK = 0, left, right, leftRowsK = false, rightRowsK = false } = product
  const { splits, stepsPerSplit } = product.split ?? { splits: 1, stepsPerSplit: k }
  const { tile } = way
  const isLeft = way.joint === 'left'
  const { rows, columns } = productOf(way, product)
  return {
    file: 'linear-subgroup',
    uses: ['subgroup-product'],
    entryPoint: 'product',
    workgroup: tile.lanes,
    subgroups: true,
    bindings: [
      { ...(isLeft ? left : right), name: 'joint' },
      { ...(isLeft ? right : left), name: 'own' },
    ],
    constants: {
      LANES: tile.lanes,
      JOINT_ROWS: tile.rows,
      OWN_COLUMNS: tile.columns,
      JOINT_IS_RIGHT: Number(!isLeft),
      JOINT_ROWS_K: Number(isLeft ? leftRowsK : rightRowsK),
      OWN_ROWS_K: Number(isLeft ? rightRowsK : leftRowsK),
      M: m,
      JOINT: rows,
      OWN: columns,
      K: k,
      SAMPLE_JOINT: isLeft ? sampleM : 0,
      SAMPLE_OWN: isLeft ? 0 : sampleM,
      SAMPLE_K: sampleK,
      JOINT_TILES: Math.ceil(rows / tile.rows),
      OWN_TILES: Math.ceil(columns / (tile.lanes * tile.columns)),
      LAST_QUAD_JOINT: lastQuad(rows),
      LAST_QUAD_OWN: lastQuad(columns),
      SPLITS: splits,
      K_PER_SPLIT: stepsPerSplit,
      ADDS: Number(leftRowsK && splits === 1),
    },
    // Tiles are counted along the columns of the lane first; where these follow the samples, workgroups past the last
    // one return.
    threads: (samples) =>
      subgroupCount(tile, productOf(way, { m: isLeft && sampleM > 0 ? samples * sampleM : m, n }, splits)) * tile.lanes,
  }
}
