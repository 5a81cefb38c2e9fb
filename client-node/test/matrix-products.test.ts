// Products on matrix units against the reference: where the adapter has units by these, and everywhere with what they do
// done by single invocations. Their texts and choice: matrix-units.test.ts.
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { initialParameters, parseModelSpec } from '@starling-grid/model'
import { MATRIX_TILES, matrixTileName } from '@starling-grid/shaders'
import { createGpuExecutor, createReferenceExecutor, type GpuExecutorOptions, traitsOf } from '@starling-grid/volunteer'
import { expectClose, noise } from '@starling-grid/volunteer/testing'
import { byTile } from './matrix-plans.ts'
import { openPlaces, readText } from './places.ts'

const { gpu, places } = await openPlaces()
after(() => gpu?.close())

/** With sums that are split and sums that are not, in every direction, and a last run of fewer samples. */
const TRAINED = parseModelSpec({
  input: [5, 300],
  layers: [
    { type: 'linear', name: 'narrow', out: 36 },
    { type: 'tanh' },
    { type: 'residual', layers: [{ type: 'linear', name: 'same', out: 36, bias: false }] },
    { type: 'relu' },
    { type: 'linear', name: 'odd', out: 35 },
  ],
  loss: 'mse',
})
const BATCH = { samples: 37, x: noise(37 * 1500, 1), y: noise(37 * 175, 2) }

for (const name of ['32×32/16×16', '64×64/32×32'])
  test(`tiles of ${name} add up what the reference does`, { skip: places[0]?.skip ?? false }, () =>
    compareTraining(
      { readText: readEmulated, choose: byTile(name, (pass) => ({ ...pass, matrixUnits: false })) },
      2e-5,
    ),
  )

async function compareTraining(
  options: Pick<GpuExecutorOptions, 'precision' | 'readText' | 'choose'>,
  tolerance: number,
): Promise<void> {
  const { device, description: adapter } = gpu ?? assert.fail()
  const ours = await createGpuExecutor({ device, adapter, spec: TRAINED, maxMicroBatch: 30, ...options })
  const parameters = initialParameters(TRAINED, 4).map((value) => 3 * value)
  const [found, wanted] = await Promise.all(
    [ours, createReferenceExecutor(TRAINED)].map(async (executor) => {
      executor.loadParameters(parameters)
      const gradient = new Float32Array(parameters.length)
      const { lossSum } = await executor.gradient(BATCH, gradient)
      executor.destroy()
      return { lossSum, gradient }
    }),
  )
  assert.ok(found && wanted)
  expectClose([found.lossSum], [wanted.lossSum], tolerance, 'loss')
  expectClose(found.gradient, wanted.gradient, tolerance, 'gradient')
}

const hasUnits = gpu !== undefined && traitsOf(gpu.device, gpu.description.software, gpu.facts).matrixUnits === true

for (const name of MATRIX_TILES.map(matrixTileName))
  test(`tiles of ${name} make the gradient of f32, nearly`, { skip: !hasUnits && 'no matrix units' }, () =>
    compareTraining({ precision: 'f16', readText, choose: byTile(name, (pass) => pass) }, 1e-2),
  )

/**
 * What matrix units do, in f32 and by single invocations: each adds up eight of its subgroup's 256 sums, those of one
 * column and every second row. It keeps these rows of the left matrix and this column of the right one.
 */
const BY_INVOCATIONS = `
fn product_of(left: array<f32, 128>, right: array<f32, 16>, sum: array<f32, 8>) -> array<f32, 8> {
  var total = sum;
  for (var i = 0u; i < 128u; i++) { total[i / 16u] += left[i] * right[i % 16u]; }
  return total;
}
var<private> place_in_subgroup: u32;
fn store_sum(subgroup: u32, sum: array<f32, 8>) {
  let n = place_in_subgroup % 16u;
  for (var i = 0u; i < 8u; i++) {
    stage[subgroup][(place_in_subgroup / 16u + 2u * i) * STAGE_STRIDE + n / 4u][n % 4u] = sum[i];
  }
}
${loadOf('row_of_a', 128, '(place_in_subgroup / 16u + i / 16u * 2u)', '(i % 16u)')}
${loadOf('col_of_a', 128, '(i % 16u)', '(place_in_subgroup / 16u + i / 16u * 2u)')}
${loadOf('row_of_b', 16, 'i', '(place_in_subgroup % 16u)')}
${loadOf('col_of_b', 16, '(place_in_subgroup % 16u)', 'i')}`

function loadOf(name: string, count: number, line: string, at: string): string {
  return `fn ${name}(band: u32, first: u32, stride: u32) -> array<f32, ${count}> {
  var all = array<f32, ${count}>();
  for (var i = 0u; i < ${count}u; i++) { all[i] = tile${name.slice(-2)}[band][first + ${line} * stride + ${at} / 4u][${at} % 4u]; }
  return all;
}`
}

async function readEmulated(url: URL): Promise<string> {
  const text = (await readText(url))
    .replaceAll('subgroup_matrix_left<f16, 16, 16>', 'array<f32, 128>')
    .replaceAll('subgroup_matrix_right<f16, 16, 16>', 'array<f32, 16>')
    .replaceAll('subgroup_matrix_result<f32, 16, 16>', 'array<f32, 8>')
    .replaceAll(/subgroupMatrixLoad<[^(]*?, (row|col)_major>\(&tile_(\w)\[(\w)\]/g, '$1_of_$2($3')
    .replaceAll('subgroupMatrixMultiplyAccumulate', 'product_of')
    .replaceAll('subgroupMatrixStore<row_major>(&stage[subgroup], 0u, sum, STAGE_STRIDE)', 'store_sum(subgroup, sum)')
    .replaceAll('vec4h', 'vec4f')
    .replaceAll(/ *@builtin\(subgroup\w+\).*\n/g, '')
    .replace(
      'let tile =',
      'let subgroup = lane / 32u;\nlet place = lane % 32u;\nplace_in_subgroup = place;\nlet tile =',
    )
  return url.href.endsWith('matrix-product.wgsl') ? text + BY_INVOCATIONS : text
}
