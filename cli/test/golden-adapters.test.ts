// The golden vectors on each software adapter: two drivers that share no code compute what PyTorch computed.
// Where one is not installed the test says so; it never passes in silence.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { ADAPTER_CHOICE, adapterEnvironment } from '@starling-grid/client-node'

const TYPESCRIPT = fileURLToPath(new URL('../../bin/typescript.mjs', import.meta.url))
const PROGRAM = fileURLToPath(new URL('../src/main.ts', import.meta.url))
const GOLDEN = fileURLToPath(new URL('../../../shared/golden', import.meta.url))
/** Cases that passed on both adapters when this was written; operators that come later add to them. */
const FEWEST_PASSED = 20

for (const [adapter, cure] of [
  ['SwiftShader', '`npm ci` on Linux x64'],
  ['llvmpipe', '`apt-get install mesa-vulkan-drivers`, Mesa 24 or later'],
] as const) {
  const { env, description } = await adapterEnvironment({ adapter }, openToChoice(adapter))
  const missing =
    !description.toLowerCase().includes(adapter.toLowerCase()) &&
    `${adapter} is not here (${description}); it comes with ${cure}`
  const skip = (!existsSync(GOLDEN) && `no golden vectors in ${GOLDEN}`) || missing

  test(`the golden vectors agree on ${adapter}`, { skip }, () => {
    const { stdout, stderr } = spawnSync(
      process.execPath,
      [TYPESCRIPT, PROGRAM, 'golden', GOLDEN, '--json', '--adapter', adapter],
      { encoding: 'utf8', env },
    )
    const report: unknown = JSON.parse(stdout.trimEnd().split('\n').at(-1) ?? '')
    assert.ok(
      typeof report === 'object' && report !== null && 'failed' in report && 'passed' in report && 'adapter' in report,
      stderr,
    )
    assert.match(String(report.adapter).toLowerCase(), new RegExp(adapter.toLowerCase()))
    assert.deepEqual(report.failed, [], stderr)
    assert.ok(Number(report.passed) >= FEWEST_PASSED, stderr)
  })
}

const OPERATORS = fileURLToPath(new URL('../../../shared/golden/ops', import.meta.url))
const absent = !existsSync(OPERATORS) && 'the golden operators are not here'

test(
  'what GPUs would be given agrees with the operators of PyTorch, on whatever adapter there is',
  { skip: absent },
  () => {
    const { status, stdout } = spawnSync(process.execPath, [TYPESCRIPT, PROGRAM, 'golden', OPERATORS, '--as', 'gpu'], {
      encoding: 'utf8',
    })
    const lastLine = stdout.trimEnd().split('\n').at(-1) ?? ''
    assert.equal(status, 0, lastLine)
    assert.match(lastLine, /^3\d passed, 0 failed, 0 unsupported$/)
  },
)

/** The environment as it was before the runner of the tests chose an adapter, unless it chose the one wanted here. */
function openToChoice(adapter: string): NodeJS.ProcessEnv {
  const { [ADAPTER_CHOICE]: choice, VK_ICD_FILENAMES: _drivers, ...env } = process.env
  return choice === undefined || choice.includes(adapter) ? process.env : env
}
