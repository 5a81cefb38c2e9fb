// Whether an adapter multiplies matrices as matrix-product.wgsl asks: 16 × 16 of f16 by subgroups of 32, summed in f32.
// The feature is one of Chromium's experiments; what an adapter says of it is not in WebGPU's types.

export const MATRIX_FEATURE = 'chromium-experimental-subgroup-matrix'

const SUBGROUP = 32
const EDGE = 16

export interface MatrixClaims {
  /** of the device */
  readonly features: ReadonlySet<string>
  /** invocations of every subgroup; undefined where their number varies */
  readonly subgroupSize: number | undefined
  /** `subgroupMatrixConfigs` of the adapter's info; most browsers have none */
  readonly configs: unknown
}

export function hasMatrixUnits({ features, subgroupSize, configs }: MatrixClaims): boolean {
  return (
    features.has(MATRIX_FEATURE) &&
    features.has('shader-f16') &&
    subgroupSize === SUBGROUP &&
    Array.isArray(configs) &&
    configs.some(isOurs)
  )
}

function isOurs(config: unknown): boolean {
  if (typeof config !== 'object' || config === null) return false
  const of = (name: string): unknown => Reflect.get(config, name)
  const isSquare = ['M', 'N', 'K'].every((name) => of(name) === EDGE)
  return isSquare && of('componentType') === 'f16' && of('resultComponentType') === 'f32'
}
