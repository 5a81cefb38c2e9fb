// What AMD's compiler makes of the kernels that a GPU is given first, without a GPU: Mesa's RADV compiles for a family
// of GPUs that this machine does not have. It takes Mesa's drivers, the headers of Vulkan, spirv-as and a C compiler.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, open, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { adapterEnvironment } from '../src/runtime/adapter-environment.ts'

const FAMILY = 'navi31'
const LEAST_WAVES = 8
/** A busy machine takes seconds for each of some 80 shaders. */
const DUMP_MS = 900_000

/** Where Debian and others put RADV's manifest; or wherever this variable says. */
const MANIFESTS = [
  process.env['STARLING_RADV'] ?? '',
  '/usr/share/vulkan/icd.d/radeon_icd.x86_64.json',
  '/usr/share/vulkan/icd.d/radeon_icd.json',
]
const manifest = MANIFESTS.find((path) => path !== '' && existsSync(path))

const folder = await mkdtemp(join(tmpdir(), 'starling-compilers-'))
after(() => rm(folder, { recursive: true, force: true }))

const at = (name: string) => fileURLToPath(new URL(name, import.meta.url))
const statistics = join(folder, 'pipeline-statistics')

/** Compiles the program that asks a driver. */
function whyNot(): string | false {
  if (manifest === undefined) return 'no RADV: install mesa-vulkan-drivers'
  if (spawnSync('spirv-as', ['--version']).status !== 0) return 'no spirv-as: install spirv-tools'
  const compiled = spawnSync('cc', ['-O1', at('pipeline-statistics.c'), '-o', statistics, '-lvulkan'], {
    encoding: 'utf8',
  })
  return compiled.status === 0
    ? false
    : `no C compiler with Vulkan's headers: install gcc libvulkan-dev (${compiled.stderr.slice(0, 200)})`
}

const { env, description } = await adapterEnvironment()
const skip = description.startsWith('none') ? `no adapter: ${description}` : whyNot()

interface Dumped {
  readonly name: string
  readonly assembly: string
}

async function dumped(): Promise<Dumped[]> {
  const path = join(folder, 'dump')
  const file = await open(path, 'w')
  const run = spawnSync(process.execPath, ['--import', 'tsx', at('dump-pipelines.ts')], {
    stdio: ['ignore', file.fd, file.fd],
    env: { ...process.env, ...env },
    timeout: DUMP_MS,
  })
  await file.close()
  const text = await readFile(path, 'utf8')
  assert.equal(run.status, 0, text.slice(-2000))
  return text
    .split(/\n@@@ (?=\S)/)
    .slice(1)
    .map((part) => {
      const assembly = /\/\* Dumped SPIRV disassembly \*\/\n([^]*?)(?=\n\/[/*] Dumped|$)/.exec(part)?.[1] ?? ''
      return { name: part.slice(0, part.indexOf('\n')), assembly: spoken(assembly) }
    })
}

/** Without what spirv-as of Debian does not know, and what else was printed. */
function spoken(assembly: string): string {
  const lines = assembly.split('\n').filter((line) => /^\s*(;|%|Op)/.test(line))
  return lines.filter((line) => !/MaximallyReconverges|maximal_reconvergence/.test(line)).join('\n')
}

/** u or s for each binding from 0 on. */
function bindingsOf(assembly: string): string {
  const classes = new Map(
    [...assembly.matchAll(/(%\S+) = OpVariable %\S+ (\w+)/g)].map(([, name = '', kind = '']) => [name, kind]),
  )
  const letters: string[] = []
  for (const [, name = '', index] of assembly.matchAll(/OpDecorate (%\S+) Binding (\d+)/g))
    letters[Number(index)] = classes.get(name) === 'Uniform' ? 'u' : 's'
  return Array.from(letters, (letter = 's') => letter).join('')
}

/** Name → value of each statistic, for each pipeline. */
async function compiledBy(family: string, pipelines: readonly Dumped[]): Promise<Map<string, number>[]> {
  const words: string[] = []
  for (const [i, { name, assembly }] of pipelines.entries()) {
    const path = join(folder, String(i))
    await writeFile(`${path}.spvasm`, assembly)
    const assembled = spawnSync('spirv-as', ['--target-env', 'vulkan1.1', '-o', path, `${path}.spvasm`], {
      encoding: 'utf8',
    })
    assert.equal(assembled.status, 0, `${name}: ${assembled.stderr}`)
    const entry = /OpEntryPoint GLCompute %\S+ "([^"]+)"/.exec(assembly)?.[1] ?? ''
    words.push(path, entry, bindingsOf(assembly))
  }
  const run = spawnSync(statistics, words, {
    encoding: 'utf8',
    env: {
      ...process.env,
      RADV_FORCE_FAMILY: family,
      VK_ICD_FILENAMES: manifest,
      VK_DRIVER_FILES: manifest,
      MESA_SHADER_CACHE_DISABLE: 'true',
    },
  })
  assert.equal(run.status, 0, run.stderr)
  const lines = run.stdout.trim().split('\n')
  assert.equal(lines.length, pipelines.length)
  return lines.map(
    (line) =>
      new Map(
        line
          .split('\t')
          .slice(1)
          .map((pair) => {
            const [name = '', value = ''] = pair.split('=')
            return [name, Number(value)] as const
          }),
      ),
  )
}

test(
  `no kernel that a GPU is given first spills on ${FAMILY}, and each has ${LEAST_WAVES} waves`,
  { skip },
  async () => {
    const pipelines = await dumped()
    assert.ok(pipelines.length > 60, `${pipelines.length} pipelines`)
    for (const wanted of ['forward', 'query_gradient', 'key_value_gradient'])
      assert.equal(pipelines.filter(({ name }) => name.endsWith(`: flash-attention-shared.${wanted}`)).length, 2)
    const found = await compiledBy(FAMILY, pipelines)
    const bad = found.flatMap((values, i) => {
      const [spilled, scratch, waves] = ['Spilled VGPRs', 'Scratch size', 'Subgroups per SIMD'].map((name) => {
        const value = values.get(name)
        assert.ok(value !== undefined, `the compiler tells no ${name}`)
        return value
      })
      const isGood = spilled === 0 && scratch === 0 && (waves ?? 0) >= LEAST_WAVES
      return isGood ? [] : [`${pipelines[i]?.name}: ${spilled} spilled, ${scratch} B of scratch, ${waves} waves`]
    })
    assert.deepEqual(bad, [])
  },
)
