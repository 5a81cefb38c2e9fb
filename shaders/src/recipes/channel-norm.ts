// Batch norm and group norm: sums in two stages, everything else four elements per invocation.

import type { ChannelNormDims, KernelOperands, StatisticsDims } from '../kernels.ts'
import {
  array,
  BUSY_STREAM,
  matrix,
  real,
  roundUp,
  STREAM_WORKGROUP,
  type Binding,
  type Pass,
  type Recipe,
} from '../recipe.ts'
import { ownRows, type ShareRows } from './row-sharing.ts'

const streamPass = { file: 'channel-norm', workgroup: STREAM_WORKGROUP } as const

/** What a statistic covers: a channel in all samples of a run, or a group of channels in one sample. */
type Scope = 'batch' | 'sample'
type BackwardOperands = KernelOperands<'batchnorm2d.backward', unknown>

// x (B, C, plane), weight, bias (C,) → y (B, C, plane), mean, inverse (statistics,)
export function channelNormForward(scope: Scope, share: ShareRows) {
  return (dims: ChannelNormDims, capacity: number): Recipe => {
    const parts = partsOf(scope, dims, capacity, share)
    const measure: Pass = {
      ...parts.perPiece,
      entryPoint: 'measure',
      bindings: [parts.x, array('pieces', 'write', parts.scratch.pieces)],
    }
    const combine: Pass = {
      ...parts.perStatistic,
      entryPoint: 'combine',
      bindings: [array('pieces', 'read', parts.scratch.pieces), ...parts.statistics('write')],
    }
    const normalize: Pass = {
      ...parts.perQuad,
      entryPoint: 'normalize',
      bindings: [
        parts.x,
        parts.weight,
        array('bias', 'read', dims.channels),
        ...parts.statistics('read'),
        parts.planes('y', 'write'),
      ],
    }
    return { scratch: parts.scratch, passes: [measure, combine, normalize] }
  }
}

// x, dy (B, C, plane), weight (C,), mean, inverse (statistics,) → dx (B, C, plane) where wanted, dweight, dbias (C,)
export function channelNormBackward(scope: Scope, share: ShareRows) {
  return (dims: ChannelNormDims, capacity: number, { dx }: Pick<BackwardOperands, 'dx'>): Recipe => {
    const parts = partsOf(scope, dims, capacity, share)
    const pieces = array('pieces', 'read', parts.scratch.pieces)
    const dy = parts.planes('dy', 'read')
    const measure: Pass = {
      ...parts.perPiece,
      entryPoint: 'measure_gradient',
      bindings: [parts.x, dy, ...parts.statistics('read'), array('pieces', 'write', parts.scratch.pieces)],
    }
    const parameters: Pass = {
      ...parts.perChannel,
      entryPoint: 'parameter_gradient',
      bindings: [pieces, array('dweight', 'update', dims.channels), array('dbias', 'update', dims.channels)],
    }
    if (dx === undefined) return { scratch: parts.scratch, passes: [measure, parameters] }
    const averages = 2 * parts.statisticCount
    const combine: Pass = {
      ...parts.perStatistic,
      entryPoint: 'combine_gradient',
      bindings: [pieces, parts.weight, array('averages', 'write', averages)],
    }
    const input: Pass = {
      ...parts.perQuad,
      entryPoint: 'input_gradient',
      bindings: [
        parts.x,
        dy,
        parts.weight,
        ...parts.statistics('read'),
        array('averages', 'read', averages),
        parts.planes('dx', 'write'),
      ],
    }
    return { scratch: { ...parts.scratch, averages }, passes: [measure, parameters, combine, input] }
  }
}

// x (B, C, plane), weight, bias, mean, variance (C,) → y (B, C, plane)
export function batchnorm2dEvaluate(dims: ChannelNormDims, capacity: number): Recipe {
  const parts = partsOf('batch', dims, capacity, ownRows)
  const vectors = ['bias', 'mean', 'variance'].map((name) => array(name, 'read', dims.channels))
  return {
    scratch: {},
    passes: [
      {
        ...parts.perQuad,
        entryPoint: 'evaluate',
        bindings: [parts.x, parts.weight, ...vectors, parts.planes('y', 'write')],
      },
    ],
  }
}

// mean, inverse (C,) → dmean, dvariance (C,)
export function batchnorm2dStatistics({ channels, plane, eps, targets }: StatisticsDims): Recipe {
  const bindings = [
    ...['mean', 'inverse'].map((name) => array(name, 'read', channels)),
    ...['dmean', 'dvariance'].map((name) => array(name, 'update', channels)),
  ]
  const constants = { CHANNELS: channels, PLANE: plane, TARGETS: targets, EPS: real(eps) }
  return {
    scratch: {},
    passes: [{ ...streamPass, entryPoint: 'report', constants, bindings, threads: () => channels }],
  }
}

/** Workgroups that keep a GPU busy with sums. */
const BUSY_ROWS = 256

function partsOf(
  scope: Scope,
  { channels, plane, groupChannels, eps }: ChannelNormDims,
  capacity: number,
  share: ShareRows,
) {
  const perPlane = Math.ceil((share === ownRows ? BUSY_STREAM : BUSY_ROWS) / (capacity * channels))
  const piece = roundUp(Math.ceil(plane / perPlane), 4)
  const [pieces, quads, groups] = [Math.ceil(plane / piece), Math.ceil(plane / 4), channels / groupChannels]
  const statisticCount = scope === 'batch' ? channels : capacity * groups
  const constants = {
    CHANNELS: channels,
    PLANE: plane,
    GROUP_CHANNELS: groupChannels,
    WHOLE_BATCH: scope === 'batch' ? 1 : 0,
    PIECE: piece,
    PIECES: pieces,
    QUADS: quads,
    EPS: real(eps),
  }
  const pass = (threads: Pass['threads']) => ({ ...streamPass, constants, threads })
  const rows = (steps: number, count: (samples: number) => number) => {
    const { sharing, invocations } = share({ steps, reads: 4, workgroup: STREAM_WORKGROUP })
    return { ...streamPass, ...sharing, constants, threads: (samples: number) => invocations(count(samples)) }
  }
  const perStatistic = scope === 'batch' ? capacity * pieces : groupChannels * pieces
  const planes = (name: string, access: Binding['access']) => matrix(name, access, capacity * channels, plane)
  return {
    statisticCount,
    planes,
    x: planes('x', 'read'),
    weight: array('weight', 'read', channels),
    statistics: (access: 'read' | 'write') => ['mean', 'inverse'].map((name) => array(name, access, statisticCount)),
    scratch: { pieces: capacity * channels * pieces * 2 },
    perPiece: rows(Math.ceil(piece / 4), (samples) => samples * channels * pieces),
    perStatistic: rows(perStatistic, (samples) => (scope === 'batch' ? channels : samples * groups)),
    perChannel: rows(capacity * pieces, () => channels),
    perQuad: pass((samples) => samples * channels * quads),
  }
}
