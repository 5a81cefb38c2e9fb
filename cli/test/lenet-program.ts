// A rank that trains LeNet-5 on its part of the batches that PyTorch trained on: lenet-program.ts FILE. Rank 0 prints
// `{ losses, errors }`: the mean losses of all ranks, and how far each tensor ended from PyTorch's.
import { readFile } from 'node:fs/promises'
import {
  type Batch,
  broadcastParameters,
  distributedOptimizer,
  init,
  openModel,
  type OptimizerSpec,
} from '@starling-grid/client'
import { type ParameterEntry, parameterLayout, parseModelSpec } from '@starling-grid/model'
import { readSafetensors } from '@starling-grid/protocol'

const { tensors, metadata } = readSafetensors(await readFile(process.argv[2] ?? ''))
const {
  spec,
  loss,
  input_scale: inputScale,
  optimizer: rule,
} = JSON.parse(metadata['case'] ?? '') as {
  readonly spec: object
  readonly loss: string
  readonly input_scale: number
  readonly optimizer: OptimizerSpec
}

function tensorOf(name: string): { readonly dtype: string; readonly data: Uint8Array } {
  const tensor = tensors.get(name)
  if (tensor === undefined) throw new Error(`expected the tensor ${name}, got none`)
  return tensor
}

/** In the type that PyTorch stored them in. */
function numbersOf(name: string): ArrayLike<number> {
  const { dtype, data } = tensorOf(name)
  const { buffer } = new Uint8Array(data) // a copy that begins at 0
  if (dtype === 'F32') return new Float32Array(buffer)
  return dtype === 'I32' ? new Int32Array(buffer) : data
}

const floatsOf = (name: string): Float32Array => Float32Array.from(numbersOf(name))

/** The part of rank `rank` of `size`: as many samples as the other ranks have. */
function partOf(step: number, rank: number, size: number): Batch {
  const x = floatsOf(`x.${step}`).map((value) => value * inputScale)
  const y = Int32Array.from(numbersOf(`y.${step}`))
  const samples = y.length / size
  const pixels = x.length / y.length
  return {
    samples,
    x: x.slice(rank * samples * pixels, (rank + 1) * samples * pixels),
    y: y.slice(rank * samples, (rank + 1) * samples),
  }
}

const group = await init()
const model = await openModel(parseModelSpec({ name: 'lenet', ...spec, loss, inputScale }), {
  executor: 'reference',
  seed: group.rank,
})
const { entries } = parameterLayout(model.spec)
// Rank 0 alone knows where PyTorch began.
if (group.rank === 0) for (const { name, offset } of entries) model.parameters.set(floatsOf(`init.${name}`), offset)
await broadcastParameters(group, model.parameters)
const optimizer = distributedOptimizer(group, model.optimizer(rule))

const losses: number[] = []
for (let step = 0; tensors.has(`x.${step}`); step++) {
  const { loss: own, gradient } = await model.gradient(partOf(step, group.rank, group.size))
  await optimizer.step(gradient)
  losses.push((await group.allReduce(Float32Array.of(own), { op: 'mean' }))[0] ?? Number.NaN)
}

/** ‖ours − PyTorch’s‖ ÷ how far PyTorch went */
function errorOf({ name, offset, length }: ParameterEntry): number {
  const [from, to] = [floatsOf(`init.${name}`), floatsOf(`final.${name}`)]
  let [off, way] = [0, 0]
  for (let i = 0; i < length; i++) {
    off += ((model.parameters[offset + i] ?? 0) - (to[i] ?? 0)) ** 2
    way += ((to[i] ?? 0) - (from[i] ?? 0)) ** 2
  }
  return Math.sqrt(off / way)
}
if (group.rank === 0) console.log(JSON.stringify({ losses, errors: entries.map(errorOf) }))
await group.barrier()
await group.close()
model.close()
