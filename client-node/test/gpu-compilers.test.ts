// What compilers of GPUs make of the kernels that a GPU is given first, without a GPU: Mesa's RADV and ANV compile for
// AMD's and Intel's GPUs that this machine does not have. It takes Mesa's drivers, the headers of Vulkan, spirv-as and
// a C compiler. RADV has a null device; ANV wants one that Mesa pretends, which no package has. Build it from the
// source of the Mesa that is installed, and name it in STARLING_INTEL_SHIM:
//   meson setup b -Dtools=drm-shim,intel -Dgallium-drivers=crocus -Dvulkan-drivers= -Dplatforms= -Dllvm=disabled \
//     -Dglx=disabled -Degl=disabled -Dgbm=disabled
//   ninja -C b src/intel/tools/libintel_noop_drm_shim.so
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, open, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { adapterEnvironment } from '../src/runtime/adapter-environment.ts'

/** A busy machine takes seconds for each of some 80 shaders. */
const DUMP_MS = 900_000

/** A GPU that this machine does not have, and what its compiler may say of a kernel. */
interface Target {
  readonly gpu: string
  /** manifests of its driver, by Debian and others */
  readonly manifests: readonly string[]
  readonly fewRegisters: boolean
  readonly env: NodeJS.ProcessEnv
  /** statistics that must be 0 */
  readonly none: readonly string[]
  /** a statistic, and the least that it may be */
  readonly atLeast: readonly [name: string, value: number]
  /** a file without which there is no such device, and how to have it */
  readonly needs?: readonly [path: string | undefined, cure: string]
}

const INTEL_SHIM = process.env['STARLING_INTEL_SHIM']
const ICD = '/usr/share/vulkan/icd.d'

const TARGETS: readonly Target[] = [
  {
    gpu: 'navi31',
    manifests: [process.env['STARLING_RADV'] ?? '', `${ICD}/radeon_icd.x86_64.json`, `${ICD}/radeon_icd.json`],
    fewRegisters: false,
    env: { RADV_FORCE_FAMILY: 'navi31' },
    none: ['Spilled VGPRs', 'Scratch size'],
    atLeast: ['Subgroups per SIMD', 8],
  },
  {
    gpu: 'tgl',
    manifests: [`${ICD}/intel_icd.x86_64.json`, `${ICD}/intel_icd.json`],
    fewRegisters: true,
    env: { INTEL_STUB_GPU_PLATFORM: 'tgl', LD_PRELOAD: INTEL_SHIM },
    none: ['Spill Count', 'Scratch Memory Size'],
    atLeast: ['Max dispatch width', 8],
    needs: [INTEL_SHIM, "no GPU of Intel's to pretend: name Mesa's libintel_noop_drm_shim.so in STARLING_INTEL_SHIM"],
  },
]

const folder = await mkdtemp(join(tmpdir(), 'starling-compilers-'))
after(() => rm(folder, { recursive: true, force: true }))

const at = (name: string) => fileURLToPath(new URL(name, import.meta.url))
const statistics = join(folder, 'pipeline-statistics')

const compiler = spawnSync('cc', ['-O1', at('pipeline-statistics.c'), '-o', statistics, '-lvulkan'], {
  encoding: 'utf8',
})
const { env, description } = await adapterEnvironment()

function manifestOf({ manifests }: Target): string | undefined {
  return manifests.find((path) => path !== '' && existsSync(path))
}

function whyNot(target: Target): string | false {
  if (description.startsWith('none')) return `no adapter: ${description}`
  if (manifestOf(target) === undefined) return 'no driver: install mesa-vulkan-drivers'
  if (target.needs && !existsSync(target.needs[0] ?? '')) return target.needs[1]
  if (spawnSync('spirv-as', ['--version']).status !== 0) return 'no spirv-as: install spirv-tools'
  return compiler.status === 0
    ? false
    : `no C compiler with Vulkan's headers: install gcc libvulkan-dev (${compiler.stderr.slice(0, 200)})`
}

interface Dumped {
  readonly name: string
  readonly assembly: string
}

async function dumpedFor({ gpu, fewRegisters }: Target): Promise<Dumped[]> {
  const path = join(folder, gpu)
  const words = fewRegisters ? ['few-registers'] : []
  const file = await open(path, 'w')
  const run = spawnSync(process.execPath, ['--import', 'tsx', at('dump-pipelines.ts'), ...words], {
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
async function compiledFor(target: Target, pipelines: readonly Dumped[]): Promise<Map<string, number>[]> {
  const words: string[] = []
  for (const [i, { name, assembly }] of pipelines.entries()) {
    const path = join(folder, `${target.gpu}-${i}`)
    await writeFile(`${path}.spvasm`, assembly)
    const assembled = spawnSync('spirv-as', ['--target-env', 'vulkan1.1', '-o', path, `${path}.spvasm`], {
      encoding: 'utf8',
    })
    assert.equal(assembled.status, 0, `${name}: ${assembled.stderr}`)
    const entry = /OpEntryPoint GLCompute %\S+ "([^"]+)"/.exec(assembly)?.[1] ?? ''
    words.push(path, entry, bindingsOf(assembly))
  }
  const manifest = manifestOf(target)
  const run = spawnSync(statistics, words, {
    encoding: 'utf8',
    env: {
      ...process.env,
      ...target.env,
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

function judged({ none, atLeast: [rate, least] }: Target, name: string, found: ReadonlyMap<string, number>): string[] {
  for (const wanted of [...none, rate]) assert.ok(found.has(wanted), `the compiler tells no ${wanted}`)
  const value = found.get(rate) ?? 0
  const bad = none.filter((each) => found.get(each) !== 0).map((each) => `${name}: ${each} is ${found.get(each)}`)
  return value >= least ? bad : [...bad, `${name}: ${rate} is ${value}, below ${least}`]
}

for (const target of TARGETS) {
  const [rate, least] = target.atLeast
  test(
    `no kernel that ${target.gpu} is given first spills, and each has ${rate} of ${least} or more`,
    { skip: whyNot(target) },
    async () => {
      const pipelines = await dumpedFor(target)
      assert.ok(pipelines.length > 60, `${pipelines.length} pipelines`)
      for (const wanted of ['forward', 'query_gradient', 'key_value_gradient'])
        assert.equal(pipelines.filter(({ name }) => name.endsWith(`: flash-attention-shared.${wanted}`)).length, 2)
      const found = await compiledFor(target, pipelines)
      const bad = found.flatMap((values, i) => judged(target, pipelines[i]?.name ?? '', values))
      assert.deepEqual(bad, [])
    },
  )
}
