// Optimizers and the gradient's norm, over one flat vector.

import type { FlatDims } from '../kernels.ts'
import { array, STREAM_WORKGROUP, type Binding, type Recipe } from '../recipe.ts'
import { SETTINGS_LENGTH } from '../reference/optimizer-kernels.ts'

/** Invocations that sum squares: keeps every core of a software adapter and most of a small GPU busy. */
const SUM_THREADS = 1024

// parameters, velocity (length,) ← gradient (length,)
export function sgdUpdate({ length }: FlatDims): Recipe {
  return updatePass('sgd', length, ['parameters', 'velocity'])
}

// parameters, mean, square (length,) ← gradient (length,)
export function adamwUpdate({ length }: FlatDims): Recipe {
  return updatePass('adamw', length, ['parameters', 'mean', 'square'])
}

function updatePass(file: 'sgd' | 'adamw', length: number, updated: readonly string[]): Recipe {
  const bindings: Binding[] = [
    array('settings', 'read', SETTINGS_LENGTH),
    array('gradient', 'read', length, 'vec4f'),
    ...updated.map((name) => array(name, 'update', length, 'vec4f')),
  ]
  const threads = () => Math.ceil(length / 4)
  return {
    scratch: {},
    passes: [
      { file, entryPoint: 'update', constants: { LENGTH: length }, bindings, workgroup: STREAM_WORKGROUP, threads },
    ],
  }
}

// x (length,) → y (1,)
export function sumOfSquaresSum({ length }: FlatDims): Recipe {
  const common = {
    file: 'sum-of-squares',
    constants: { LENGTH: length, THREADS: SUM_THREADS },
    workgroup: STREAM_WORKGROUP,
  } as const
  return {
    scratch: { parts: SUM_THREADS },
    passes: [
      {
        ...common,
        entryPoint: 'sum_parts',
        bindings: [array('x', 'read', length, 'vec4f'), array('parts', 'write', SUM_THREADS)],
        threads: () => SUM_THREADS,
      },
      {
        ...common,
        entryPoint: 'sum_all',
        bindings: [array('parts', 'read', SUM_THREADS), array('y', 'write', 1)],
        threads: () => 1,
      },
    ],
  }
}
