// A plan in words and numbers: what runs, by which variant and why, what it moves and computes, and what memory it
// takes. Pure. Costs are predictions from rough rates per class of adapter; measurements belong to benchmarks.

import {
  type AdapterTraits,
  bindingBytes,
  boundBindings,
  type KernelCall,
  type Pass,
  serialLoads,
  workgroupGrid,
} from '@starling-grid/shaders'
import type { WasmPass } from '@starling-grid/shaders/wasm'
import type { GraphPart } from './build.ts'
import { PARTS } from './drafts.ts'
import { flopsOf } from './flops.ts'
import { poolBytes, type Plan, type PlannedPass } from './plan.ts'
import type { Tensor } from './tensor.ts'

/** One kernel call of the plan. */
export interface ExplainedCall {
  readonly part: GraphPart
  readonly kernel: string
  /** what fusion lets it do to its results besides: 'residual', an activation, or the derivative of one */
  readonly epilogue: readonly string[]
  readonly variant: string
  readonly why: string
  /** workgroups of each of its dispatches; of WebAssembly, the pieces of each pass */
  readonly workgroups: readonly number[]
  /** invocations of each of its dispatches; none on WebAssembly */
  readonly invocations: readonly number[]
  /** what one of these invocations reads one after the other: quads, or numbers that lie apart */
  readonly serialLoads: readonly number[]
  /** of everything that its dispatches bind */
  readonly bytes: number
  readonly flops: number
  /** share of the arithmetic that makes results; the rest lies past the edges of tiles */
  readonly useful: number
  readonly predictedMs: number
}

export interface Explanation {
  /** samples of one run */
  readonly samples: number
  /** some values are computed again in backward instead of kept */
  readonly recomputed: boolean
  readonly calls: readonly ExplainedCall[]
  readonly totals: {
    readonly dispatches: number
    readonly flops: number
    readonly bytes: number
    readonly predictedMs: number
    /** share of the arithmetic of products that makes results */
    readonly useful: number
    /** pooled buffers: values between kernels and their scratch */
    readonly activationBytes: number
    /** the most that lives at one time, which no plan of these calls can go below */
    readonly peakLiveBytes: number
    /** the same for the values of the graph alone, without the scratch of kernels */
    readonly leastTensorBytes: number
    /** activationBytes ÷ leastBytes */
    readonly ratio: number
    /** parameters and their gradient */
    readonly parameterBytes: number
  }
}

/**
 * Sustained rates, rough: performance measurements of SwiftShader and lavapipe on two cores, and of a GPU of the middle
 * class.
 */
const SOFTWARE_RATES = { flopsPerMs: 5e6, bytesPerMs: 2e6, dispatchMs: 0.015 }
const GPU_RATES = { flopsPerMs: 5e9, bytesPerMs: 3e8, dispatchMs: 0.005 }

/** What one training step of `samples` samples does. */
export function explainPlan(
  plan: Plan<Pass | WasmPass>,
  { samples, traits }: { readonly samples: number; readonly traits: Pick<AdapterTraits, 'software'> },
): Explanation {
  const parts = PARTS.filter((part) => part !== 'evaluation' && part !== 'logits')
  const calls = parts.flatMap((part) =>
    [...byCall(plan.parts[part])].map(([name, passes]) => {
      const call = plan.graph[part]?.[Number(name.split('.')[1])]
      if (!call) throw new Error(`internal: the plan runs ${name}, which the graph does not have`)
      return explainCall(part, call, passes, { samples, traits })
    }),
  )
  const sum = (of: (call: ExplainedCall) => number) => calls.reduce((total, call) => total + of(call), 0)
  const activationBytes = poolBytes(plan)
  return {
    samples,
    recomputed: plan.recomputed,
    calls,
    totals: {
      dispatches: sum(({ workgroups }) => workgroups.length),
      flops: sum(({ flops }) => flops),
      bytes: sum(({ bytes }) => bytes),
      predictedMs: sum(({ predictedMs }) => predictedMs),
      useful: usefulOf(calls),
      activationBytes,
      peakLiveBytes: plan.peakLiveBytes,
      leastTensorBytes: plan.leastTensorBytes,
      ratio: activationBytes / plan.peakLiveBytes,
      parameterBytes: 2 * plan.flat.deviceLength * Float32Array.BYTES_PER_ELEMENT,
    },
  }
}

/** Of products: other kernels have no tiles. */
function usefulOf(calls: readonly ExplainedCall[]): number {
  const products = calls.filter(({ kernel }) => /^(linear|conv2d)\./.test(kernel))
  const flops = products.reduce((sum, call) => sum + call.flops, 0)
  const computed = products.reduce((sum, call) => sum + call.flops / call.useful, 0)
  return computed === 0 ? 1 : flops / computed
}

type ExplainedPass = PlannedPass<Pass | WasmPass>

function byCall(passes: readonly ExplainedPass[]): Map<string, ExplainedPass[]> {
  const calls = new Map<string, ExplainedPass[]>()
  for (const pass of passes) calls.set(pass.origin.call, [...(calls.get(pass.origin.call) ?? []), pass])
  return calls
}

function explainCall(
  part: GraphPart,
  call: KernelCall<Tensor>,
  passes: readonly ExplainedPass[],
  { samples, traits }: { readonly samples: number; readonly traits: Pick<AdapterTraits, 'software'> },
): ExplainedCall {
  const workgroups = passes.map(({ pass }) => {
    if ('pieces' in pass) return pass.pieces(samples)
    const { x, y } = workgroupGrid(pass.threads(samples), pass.workgroup)
    return x * y
  })
  const shaders = passes.flatMap(({ pass }) => ('pieces' in pass ? [] : [pass]))
  const bytes = passes.reduce(
    (sum, { pass }) => sum + boundBindings(pass).reduce((total, binding) => total + bindingBytes(binding), 0),
    0,
  )
  const flops = flopsOf(call, samples)
  const { flopsPerMs, bytesPerMs, dispatchMs } = traits.software ? SOFTWARE_RATES : GPU_RATES
  const [{ origin: { variant, why, useful } } = { origin: { variant: '', why: '', useful: 1 } }] = passes
  return {
    part,
    kernel: call.kernel,
    epilogue: epilogueOf(call),
    variant,
    why,
    workgroups,
    invocations: shaders.map((pass) => pass.threads(samples)),
    serialLoads: shaders.map((pass) => serialLoads(pass, samples)),
    bytes,
    flops,
    useful,
    predictedMs: Math.max(flops / flopsPerMs, bytes / bytesPerMs) + passes.length * dispatchMs,
  }
}

function epilogueOf({ dims, operands }: KernelCall<Tensor>): string[] {
  const { activation, derivative } = dims as { activation?: string; derivative?: string }
  return [
    ...('residual' in operands && operands.residual ? ['residual'] : []),
    ...(activation ? [activation] : []),
    ...(derivative ? [`${derivative}′`] : []),
  ]
}
