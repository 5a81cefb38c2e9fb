// Mutants of everything that computes: kernels, their references, optimizers, plans and the executor on WebGPU.
import { type Mutant, mutantsOf } from './mutant.ts'

const KERNELS = 'WGSL kernels'
const REFERENCE = 'reference kernels'
const OPTIMIZERS = 'optimizers'
const PLANNER = 'planner'
const EXECUTOR = 'GPU executor'

export const ARITHMETIC: readonly Mutant[] = [
  ...mutantsOf(
    KERNELS,
    'shaders/kernels/linear.wgsl',
    ['gpu-operators'],
    [
      [
        'the lower half of a tile has no bias',
        'y_put_block(row + 4u, rows, column, ba + bias0)',
        'y_put_block(row + 4u, rows, column, ba)',
      ],
      [
        'rows after the last four add nothing to a weight gradient',
        'for (var k = whole; k < end; k++) {',
        'for (var k = whole; k < whole; k++) {',
      ],
      ['a bias gradient is one output too late', 'dbias_add(column + 1u, sum.y);', 'dbias_add(column + 1u, sum.z);'],
    ],
  ),
  ...mutantsOf(
    KERNELS,
    'shaders/kernels/tokens.wgsl',
    ['gpu-operators'],
    [
      ['a class token learns from one sample', 'row < run.samples; row += SHARERS', 'row < 1u; row += SHARERS'],
      ['tokens behind the first keep an old gradient', 'else { dx[i] = 0.0; }', ''],
    ],
  ),
  ...mutantsOf(
    KERNELS,
    'shaders/kernels/upsample.wgsl',
    ['gpu-operators'],
    [['a square gives one column of its gradient', 'c < SCALE; c++', 'c < 1u; c++']],
  ),
  ...mutantsOf(
    KERNELS,
    'shaders/kernels/subgroup-product.wgsl',
    ['gpu-operators'],
    [
      [
        'a quad is taken from another invocation',
        'subgroupBroadcast(q, 2u), subgroupBroadcast(q, 3u)',
        'subgroupBroadcast(q, 2u), subgroupBroadcast(q, 2u)',
      ],
    ],
  ),
  ...mutantsOf(
    KERNELS,
    'shaders/kernels/conv2d.wgsl',
    ['gpu-operators'],
    [
      [
        'the lower half of a convolution repeats the upper',
        'put_outputs(first + o + 4u, end, quad0, ba)',
        'put_outputs(first + o + 4u, end, quad0, aa)',
      ],
    ],
  ),
  ...mutantsOf(
    KERNELS,
    'shaders/kernels/channel-norm.wgsl',
    ['gpu-operators'],
    [
      [
        'running variances are biased',
        'biased * elements / max(elements - 1.0, 1.0)',
        'biased * elements / max(elements, 1.0)',
      ],
      [
        'a piece is measured from its first value, not from its mean',
        'max(whole.y - off * whole.x, 0.0)',
        'max(whole.y, 0.0)',
      ],
      ['evaluation forgets eps', 'inverseSqrt(variance[channel] + EPS)', 'inverseSqrt(variance[channel])'],
    ],
  ),
  ...mutantsOf(
    KERNELS,
    'shaders/kernels/row-norm.wgsl',
    ['gpu-operators'],
    [
      ['RMS norm gives up a mean that it does not have', 'f32(CENTERED) * whole.x', 'whole.x'],
      [
        'the variance of a row is taken from its first value',
        'max(averages.y - averages.x * averages.x, 0.0)',
        'averages.y',
      ],
    ],
  ),
  ...mutantsOf(
    KERNELS,
    'shaders/kernels/softmax.wgsl',
    ['gpu-operators'],
    [
      [
        'the gradient of softmax forgets the mean',
        '(dy_quad(row * dy_stride, c) - mean)',
        'dy_quad(row * dy_stride, c)',
      ],
    ],
  ),
  ...mutantsOf(
    KERNELS,
    'shaders/kernels/dropout.wgsl',
    ['gpu-operators'],
    [['the hash of dropout leaves a step out', '  v ^= v >> vec3u(16u);\n', '']],
  ),
  ...mutantsOf(
    KERNELS,
    'shaders/kernels/avgpool2d.wgsl',
    ['gpu-operators'],
    [
      ['cells above the input count as the last line', 'select(0.0, SHARE, top + ky < HEIGHT)', 'SHARE'],
      [
        'pairs are averaged over two cells',
        'const SHARE = 1.0 / f32(KERNEL * KERNEL);',
        'const SHARE = 1.0 / f32(KERNEL);',
      ],
    ],
  ),
  ...mutantsOf(
    KERNELS,
    'shaders/kernels/activations.wgsl',
    ['gpu-operators'],
    [['gelu_tanh: 0.044715 → 0.0447', 'const CUBIC = 0.044715;', 'const CUBIC = 0.0447;']],
  ),
  ...mutantsOf(
    KERNELS,
    'shaders/kernels/maxpool2d.wgsl',
    ['gpu-operators'],
    [['of equal cells the last wins', 'if (x[i] > value) {', 'if (x[i] >= value) {']],
  ),
  ...mutantsOf(
    KERNELS,
    'shaders/kernels/cross-entropy.wgsl',
    ['gpu-sequence'],
    [
      ['of equal maxima in two parts the last counts', 'b.top > a.top)', 'b.top >= a.top)'],
      ['of equal maxima in one part the last counts', 'if (higher > seen.top) {', 'if (higher >= seen.top) {'],
      ['targets that are ignored count', 'return IGNORING == 0u || u32(labels[row]) != IGNORED;', 'return true;'],
    ],
  ),
  ...mutantsOf(
    KERNELS,
    'shaders/kernels/encode.wgsl',
    ['gpu-encoding'],
    [
      ['int8: ties round towards zero', 'twice < (2u * guess - 1u) * divisor', 'twice <= (2u * guess - 1u) * divisor'],
      ['f16: ties round up', 'rest > half || (rest == half && (kept & 1u) == 1u)', 'rest >= half'],
      ['what a step loses is not kept', '(sum & ~SIZE) | seen', 'sum'],
    ],
  ),
  ...mutantsOf(
    KERNELS,
    'shaders/kernels/attention.wgsl',
    ['gpu-sequence'],
    [
      ['a query sees half of the keys of its tile', 'min(T, row + 8u)', 'min(T, row + 4u)'],
      ['a query does not see its own token', '<= vec4u(last); }', '< vec4u(last); }'],
      ['the gradient of scores is not scaled', '(ds_quad(start, k) - mean) * SCALE', '(ds_quad(start, k) - mean)'],
      ['queries past the last count again', 'if (t + 3u < T) { return block; }', 'if (t < T) { return block; }'],
    ],
  ),
  ...mutantsOf(
    KERNELS,
    'shaders/kernels/flash-attention.wgsl',
    ['gpu-sequence'],
    [
      ['a new maximum does not shrink what was mixed', 'mixed[d] * shrink +', 'mixed[d] +'],
      ['log sums forget the maximum', '= top + log(total);', '= log(total);'],
    ],
  ),
  ...mutantsOf(
    KERNELS,
    'shaders/kernels/flash-attention-shared.wgsl',
    ['workgroup-kernels'],
    [
      ['a tile with a new maximum does not shrink what was mixed', 'mixed[i] *= shrink[i];', ''],
      ['a tile of queries sees half of its own keys', 'min(T, at.first + TILE_M)', 'min(T, at.first + TILE_M / 2u)'],
      ['keys see queries before them', '(four_from(t) >= vec4u(key))', '(four_from(t) >= vec4u(0u))'],
      ['weights of tokens past the first slab are left out', 'column / SLAB * SLAB == slab', 'column == slab'],
    ],
  ),
  ...mutantsOf(
    KERNELS,
    'shaders/kernels/shared-rows.wgsl',
    ['workgroup-kernels'],
    [
      [
        'a sum over a row leaves out what the second invocation knows',
        'if (lane < half) { known[lane] += known[lane + half]; }',
        'if (lane < half && half > 1u) { known[lane] += known[lane + half]; }',
      ],
    ],
  ),
  ...mutantsOf(
    KERNELS,
    'shaders/kernels/cross-entropy.wgsl',
    ['workgroup-kernels'],
    [['a workgroup takes the first class that it saw for the largest', ', own.at, own.top == top)', ', own.at, true)']],
  ),
  ...mutantsOf(
    KERNELS,
    'shaders/kernels/cross-entropy.wgsl',
    ['large-vocabulary'],
    [
      ['pieces before this one count for nothing', 'if (FIRST > 0u) {', 'if (FIRST > 4294967294u) {'],
      ['a piece takes its first class for that of all', 'seen.at += FIRST;', ''],
      ['every piece takes the target for one of its classes', 'label < CLASSES);', 'true);'],
      ['a sum does not follow a larger maximum', 'a.sum * exp(a.top - top) +', 'a.sum +'],
    ],
  ),
  ...mutantsOf(
    KERNELS,
    'shaders/kernels/embedding.wgsl',
    ['large-vocabulary'],
    [['a piece of a table adds what belongs to another', '  if (id >= VOCAB) { return; }\n  var sum', '  var sum']],
  ),
  ...mutantsOf(
    KERNELS,
    'shaders/src/wasm/kernels/entropy-pieces.ts',
    ['large-vocabulary'],
    [
      ['every piece takes the target for one of its classes', 'i32.lessUnsigned(own, classes)', 'i32.equal(0, 0)'],
      ['a piece takes its first class for that of all', 'f32.add(float(first), placeOf', 'f32.add(float(0), placeOf'],
    ],
  ),
  ...mutantsOf(
    EXECUTOR,
    'volunteer/src/graph/vocabulary.ts',
    ['volunteer/test/vocabulary'],
    [
      ['the logits of all classes are kept', 'Math.min(WHOLE_LOGITS_BYTES, maxBindingBytes)', 'maxBindingBytes'],
      [
        'a table is read from its beginning by every chunk',
        'dims: { ...call.dims, vocab: count, first },\n          operands: { ...call.operands, weight',
        'dims: { ...call.dims, vocab: count, first: 0 },\n          operands: { ...call.operands, weight',
      ],
      ['only the last piece moves what lies before', 'if (before === undefined) return made', 'return made'],
      ['each piece forgets those before it', '...(before ? { before } : {})', '...(before ? {} : {})'],
      [
        'gradients of all pieces go to the first rows',
        '{ offset: tensor.offset + first * columns }',
        '{ offset: tensor.offset }',
      ],
    ],
  ),
  ...mutantsOf(
    EXECUTOR,
    'volunteer/src/graph/recompute.ts',
    ['volunteer/test/recompute'],
    [
      ['the last segment is computed again, too', 'segments.slice(0, -1).entries()', 'segments.entries()'],
      [
        'all calls of a segment are computed again',
        'if (!resultsOf(call).some((storage) => wanted.has(storage))) return false',
        '',
      ],
      ['what is computed again needs nothing that is', 'if (inner.has(storage)) wanted.add(storage)', ''],
      [
        'backward computes a segment again at its very beginning',
        'renamed.slice(0, at), ...again',
        '...again, ...renamed.slice(0, at)',
      ],
      ['forward is cut in two', 'Math.max(2, Math.round(Math.sqrt(forward.length)))', '2'],
      ['forward is cut where several values cross', 'at > 0 && count === 1', 'at > 0 && count >= 1'],
    ],
  ),
  ...mutantsOf(
    EXECUTOR,
    'volunteer/src/gpu/readback.ts',
    ['volunteer/test/vocabulary', 'volunteer/test/readback'],
    [
      ['a ring of a large gradient has three buffers', 'bytes < LARGE_BYTES ? RING_LENGTH', 'true ? RING_LENGTH'],
      ['parts of a gradient of one size share one buffer', '(lengths.get(bytes) ?? 0) + 1', '1'],
      [
        'a device without memory for a second buffer is lost',
        '|| ring.made === 0) throw error',
        ') throw error; if (ring.made > 0) throw error',
      ],
      ['a run that waits for a buffer waits for ever', 'if (next) next(buffer)', 'if (next) ring?.free.push(buffer)'],
    ],
  ),
  ...mutantsOf(
    EXECUTOR,
    'volunteer/src/graph/flat-views.ts',
    ['volunteer/test/vocabulary', 'large-vocabulary'],
    [
      [
        'a segment may be too long by what follows',
        'const end = deviceLength + Math.ceil(',
        'const end = deviceLength + Math.floor(',
      ],
      ['the second half of a chunked parameter is not found', 'deviceOffset + offset - view.offset', 'deviceOffset'],
      ['a piece in a later segment is read from its beginning', 'start: first - held.start, from', 'start: 0, from'],
      ['pieces of several segments lie on each other', 'from: first - start', 'from: 0'],
      ['runs of whole parameters are as long as the range', 'offset + length - open.start <= most', 'true'],
      [
        'a piece that is not at the beginning of a parameter is read from there',
        'deviceStart: deviceOffset + first - offset',
        'deviceStart: deviceOffset',
      ],
    ],
  ),
  ...mutantsOf(
    EXECUTOR,
    'volunteer/src/graph/flat-views.ts',
    ['volunteer/test/vocabulary'],
    [
      ['a vector longer than any buffer lies in one', 'end - open.start <= maxLength', 'true'],
      ['a parameter above a binding lies in one piece', 'chunks?.get(entry.offset)', 'undefined'],
    ],
  ),
  ...mutantsOf(
    EXECUTOR,
    'volunteer/src/graph/begin-gradients.ts',
    ['volunteer/test/vocabulary', 'large-vocabulary'],
    [
      [
        'what one piece writes counts as written by all of its parameter',
        'const left = beside(begun, {',
        'const left = begun.some(({ start }) => start === view.offset) ? [] : beside(begun, {',
      ],
    ],
  ),
  ...mutantsOf(
    EXECUTOR,
    'volunteer/src/gpu/sections.ts',
    ['volunteer/test/vocabulary'],
    [['a large gradient is staged as a whole', 'found.length > 1 ? found : [gradient]', '[gradient]']],
  ),
  ...mutantsOf(
    EXECUTOR,
    'volunteer/src/gpu/sections.ts',
    ['volunteer/test/vocabulary', 'large-vocabulary', 'gpu-encoding'],
    [
      ['passes run again for each staging buffer', 'passes: i === 0 ? passes : []', 'passes'],
      [
        'a bucket is told of before its last part is here',
        'final: isLast ? final : undefined',
        'final: i === 0 ? final : undefined',
      ],
      ['every piece of the classes is the first', 'first += piece.count', ''],
      ['floats beside encoded runs are left out', 'const edges = [start, ...inOrder', 'const edges = [end, ...inOrder'],
    ],
  ),
  ...mutantsOf(
    KERNELS,
    'shaders/kernels/linear.wgsl',
    ['workgroup-kernels'],
    [['the last part of a product is left out', 'split < SPLITS; split++', 'split + 1u < SPLITS; split++']],
  ),
  ...mutantsOf(
    EXECUTOR,
    'volunteer/src/gpu/submit-pieces.ts',
    ['gpu-plan', 'fake-devices'],
    [
      ['a pass with more work than a submit may is not cut', 'if (pass.work > mostWork)', 'if (pass.work > 1e18)'],
      ['what is together in a submit is never closed', 'if (work + pass.work > mostWork) close()', ''],
    ],
  ),
  ...mutantsOf(
    EXECUTOR,
    'shaders/src/wgsl.ts',
    ['shaders/test/wgsl', 'fake-devices'],
    [
      [
        'a share that is folded shares workgroups with the next',
        'Math.ceil(even / MAX_WORKGROUPS) * MAX_WORKGROUPS',
        'even',
      ],
      ['every share of a pass begins with its first workgroup', '{ return run.first + group.y', '{ return group.y'],
    ],
  ),
  ...mutantsOf(
    EXECUTOR,
    'volunteer/src/gpu/submit-pace.ts',
    ['gpu-plan'],
    [['passes that are slower than the average are not reckoned with', '(UNEVEN * work) / ms', 'work / ms']],
  ),
  ...mutantsOf(
    KERNELS,
    'shaders/src/recipes/tiles.ts',
    ['gpu-plan'],
    [
      ['a tile may waste more than half', '(LEAST_USEFUL / useful) ** 2', '1'],
      ['a small tile is shared by as few workgroups as a large one', 'FEW_INVOCATIONS / sharedWorkgroup(tile))', '1)'],
    ],
  ),
  ...mutantsOf(
    KERNELS,
    'shaders/kernels/embedding.wgsl',
    ['gpu-sequence'],
    [['a token that comes a third time is left out', 'while (link / 2u > 0u) {', 'if (link / 2u > 0u) {']],
  ),
  ...mutantsOf(
    KERNELS,
    'shaders/kernels/linear.wgsl',
    ['gpu-operators'],
    [
      [
        'the first split of a sum is left out',
        'for (var split = sharer(lane); split < split_end; split += SHARERS)',
        'for (var split = sharer(lane) + 1u; split < split_end; split += SHARERS)',
      ],
    ],
  ),
  ...mutantsOf(
    KERNELS,
    'shaders/kernels/linear-shared.wgsl',
    ['kernel-variants'],
    [['rows past the end count again', 'select(vec4f(), block[3], k + 3u < end)', 'block[3]']],
  ),
  ...mutantsOf(
    KERNELS,
    'shaders/kernels/tile-product.wgsl',
    ['kernel-variants'],
    [['the last step of four is left out', 'add_step(sums, place, k + 3u);', '']],
  ),
  ...mutantsOf(
    KERNELS,
    'shaders/kernels/linear-matrix.wgsl',
    ['matrix-products'],
    [['steps past the end count on matrix units', 'return select(vec4h(), quad, k < end);', 'return quad;']],
  ),

  ...mutantsOf(
    REFERENCE,
    'shaders/src/reference/channel-norm.ts',
    ['volunteer/test/gradients', 'volunteer/test/batch'],
    [
      ['the gradient forgets how the variance follows', '- shift - normalized(i) * slope)', '- shift)'],
      ['running variances are biased', '/ Math.max(elements - 1, 1)', '/ Math.max(elements, 1)'],
    ],
  ),
  ...mutantsOf(
    REFERENCE,
    'shaders/src/reference/row-norm.ts',
    ['volunteer/test/gradients'],
    [['the gradient forgets the mean', 'const shift = mean ? average(columns, g) : 0', 'const shift = 0']],
  ),
  ...mutantsOf(
    REFERENCE,
    'shaders/src/reference/conv2d.ts',
    ['gpu-operators'],
    [['padding moves the input down a row', '(row * stride + ky - padding) * width', '(row * stride + ky) * width']],
  ),
  ...mutantsOf(
    REFERENCE,
    'shaders/src/reference/attention.ts',
    ['volunteer/test/gradients', 'volunteer/test/golden'],
    [
      ['a token sees the next one', 'causal ? t + 1 : length', 'causal ? Math.min(length, t + 2) : length'],
      ['the gradient of scores is not scaled', '- mean)) / Math.sqrt(headSize)', '- mean))'],
    ],
  ),
  ...mutantsOf(
    REFERENCE,
    'shaders/src/reference/maxpool2d.ts',
    ['gpu-operators'],
    [['of equal cells the last wins', '(x[cell] ?? 0) > (x[best] ?? 0)', '(x[cell] ?? 0) >= (x[best] ?? 0)']],
  ),
  ...mutantsOf(
    REFERENCE,
    'shaders/src/reference/cross-entropy.ts',
    ['volunteer/test/gradients', 'volunteer/test/golden', 'gpu-sequence'],
    [
      ['smoothing is not spread', 'spread + (i === label ?', '(i === label ?'],
      [
        'of equal maxima the last counts',
        '(values[i] ?? 0) > (values[best] ?? 0)',
        '(values[i] ?? 0) >= (values[best] ?? 0)',
      ],
    ],
  ),

  ...mutantsOf(
    OPTIMIZERS,
    'shaders/src/reference/sgd.ts',
    ['model/test/optimizer', 'shaders/test/simd'],
    [
      ['Nesterov looks no step ahead', 'settings.nesterov ? f32(g + f32(momentum * v)) : v', 'v'],
      ['weight decay is forgotten', 'decay === 0 ? gradient : f32(gradient + f32(decay * parameter))', 'gradient'],
    ],
  ),
  ...mutantsOf(
    OPTIMIZERS,
    'shaders/src/reference/adamw.ts',
    ['model/test/optimizer', 'shaders/test/simd'],
    [
      ['the second moment is not corrected', 'f32(Math.sqrt(1 - beta2Power))', '1'],
      [
        'AdamW decays through the gradient as well',
        'decay: decoupled ? 0 : f32(weightDecay)',
        'decay: f32(weightDecay)',
      ],
    ],
  ),
  ...mutantsOf(
    OPTIMIZERS,
    'shaders/src/reference/sum-of-squares.ts',
    ['shaders/test/simd', 'model/test/optimizer'],
    [
      ['the last element is not in the norm', '(c + (g ?? 0) + d)', '(c + d)'],
      ['the norm is that of the sum', 'counted), targets))', 'counted)))'],
      ['statistics are clipped against', 'sum.subarray(0, counted)', 'sum'],
      ['a tail that fills no group of four may hold NaN', '&& plainFinite(values.subarray(whole))', ''],
      [
        'clipping leaves the norm a little too long',
        'return factor < 1 ? factor : 1',
        'return factor < 0.5 ? factor : 1',
      ],
    ],
  ),
  ...mutantsOf(
    OPTIMIZERS,
    'shaders/src/reference/simd-kernels.ts',
    ['shaders/test/simd'],
    [
      ['squares of the last two of four are left out', '...addSquare(1, f.high64(mean))', ''],
      ['each block begins its sums anew', 'f.keep(sum, f.first(FOLD.result, sum))', 'f.keep(sum, f.local(sum))'],
      ['what an earlier block held is forgotten', 'f.or(f.local(0), f.subtract(x, x))', 'f.subtract(x, x)'],
      [
        'an update uses the mean before clipping',
        'f.divide(f.load(SLOT.gradient), f.scalar(first)), f.scalar(first + 1)',
        'f.divide(f.load(SLOT.gradient), f.scalar(first)), f.scalar(first)',
      ],
    ],
  ),
  ...mutantsOf(
    OPTIMIZERS,
    'model/src/update.ts',
    ['model/test/update'],
    [['statistics are clipped with the gradient', 'mean: { ...mean, factor: 1 }', 'mean']],
  ),
  ...mutantsOf(
    OPTIMIZERS,
    'shaders/src/optimizer.ts',
    ['model/test'],
    [
      ['warm-up begins at nothing', '(lr * (step + 1)) / (warmup + 1)', '(lr * step) / (warmup + 1)'],
      ['decay holds for every parameter', 'decayed ? spec : { ...spec, weightDecay: 0 }', 'spec'],
      ["Adam's powers stand still", '[beta1Power * beta1, beta2Power * beta2]', '[beta1Power * beta1, beta2Power]'],
    ],
  ),

  ...mutantsOf(
    PLANNER,
    'volunteer/src/graph/begin-gradients.ts',
    ['volunteer/test/plan'],
    [
      [
        'two kernels that come to a shared gradient both begin it',
        'if (begun.some((other) => overlap(other, range))) return binding',
        '',
      ],
      ['small gradients are begun, too', 'binding.covers && operand.size >= LEAST_FLOATS', 'binding.covers'],
    ],
  ),
  ...mutantsOf(
    PLANNER,
    'volunteer/src/graph/plan.ts',
    ['volunteer/test/plan'],
    [
      ['the pool has no budget', '(poolBytes(plan) <= crowds || capacity === 1)', 'true'],
      [
        'what a pass writes may share a buffer with what it reads',
        'if (a !== b) this.#separate(a, b)',
        'if (a === b) this.#separate(a, b)',
      ],
      ['a binding may be larger than the adapter allows', 'if (need > has) return', 'if (need > 2 * has) return'],
    ],
  ),
  ...mutantsOf(
    PLANNER,
    'volunteer/src/graph/attempts.ts',
    ['volunteer/test/recompute'],
    [
      [
        'a model that does not fit is refused at once',
        'recomputes ? isComputable :',
        'recomputes ? recompute && isComputable :',
      ],
      ['blocks that are normalised as a whole are cut first', 'isComputable && graph.mixesSamples', 'false'],
    ],
  ),
  ...mutantsOf(
    PLANNER,
    'volunteer/src/graph/memory.ts',
    ['volunteer/test/plan'],
    [
      [
        'values that live at the same time share memory',
        'other.first <= life.last && life.first <= other.last',
        'other.first < life.last && life.first < other.last',
      ],
      ['places are not where buffers can be bound', 'const ALIGNMENT_BYTES = 256', 'const ALIGNMENT_BYTES = 4'],
      [
        'the first order is good enough',
        'if (bytesOf(best.plan) <= goodBytes) break',
        'if (best.order.length > 0) break',
      ],
    ],
  ),
  ...mutantsOf(
    PLANNER,
    'volunteer/src/graph/fuse.ts',
    ['volunteer/test/fuse'],
    [
      ['a product that others read, too, loses its result', 'if (readers.get(storage) !== 1) return undefined', ''],
      [
        'a gradient that others add to gets an epilogue',
        "readers.get(storage) === (kernel.endsWith('.forward') ? 1 : 2)",
        'true',
      ],
      [
        'what a derivative needs is not stored',
        'withEpilogue(from, { activation }, { preactivation: x, y })',
        'withEpilogue(from, { activation }, { y })',
      ],
    ],
  ),
  ...mutantsOf(
    PLANNER,
    'volunteer/src/graph/batches.ts',
    ['volunteer/test/plan', 'volunteer/test/batch', 'reference-executor'],
    [
      ['a class that the model does not have is taken', 'label < 0 || label >= classes', 'label < 0'],
      ['blocks are cut where samples influence each other', 'if (!mixesSamples) return', 'if (samples > 0) return'],
    ],
  ),
  ...mutantsOf(
    PLANNER,
    'volunteer/src/graph/half.ts',
    ['volunteer/test/half'],
    [['statistics are kept in half', 'new Set([...half].filter((storage) => !kept.has(storage)))', 'half']],
  ),
  ...mutantsOf(
    PLANNER,
    'volunteer/src/graph/backward.ts',
    ['volunteer/test/gradients'],
    [
      [
        'of two gradients of one value the last one counts',
        'before ? this.#sum(value, before, gradient) : gradient',
        'gradient',
      ],
    ],
  ),

  ...mutantsOf(
    EXECUTOR,
    'volunteer/src/wasm/control.ts',
    ['client-node/test/wasm-executor'],
    [['a pass begins before the one before ended', 'if (seen === threads) return', 'return']],
  ),
  ...mutantsOf(
    EXECUTOR,
    'volunteer/src/wasm/runner.ts',
    ['volunteer/test/wasm-executor'],
    [['what backward adds to is not cleared', 'if (clearGradient)\n', 'if (!clearGradient)\n']],
  ),
  ...mutantsOf(
    EXECUTOR,
    'shaders/src/wasm/products.ts',
    ['volunteer/test/wasm-executor'],
    [
      [
        'what lies behind a row joins its sum',
        'v128.and(v128.load(address, offset), mask)',
        'v128.load(address, offset)',
      ],
      [
        'rows that fill no tile are left out',
        'for (let height = most / 2; height >= 1; height /= 2)',
        'for (let height = 0; height >= 1; height /= 2)',
      ],
    ],
  ),

  ...mutantsOf(
    EXECUTOR,
    'volunteer/src/gpu/runner.ts',
    ['client-node/test/gpu-executor'],
    [
      [
        'what backward adds to is not cleared',
        'if (index === 0 && options.clearGradient) this.#clearGradient(encoder)',
        'if (index === 0 && !options.clearGradient) this.#clearGradient(encoder)',
      ],
      [
        'parameters are written while a run uses them',
        'if (this.#waiting === 0) return this.#writeParameters(plain(flat))',
        'return this.#writeParameters(plain(flat))',
      ],
    ],
  ),
  ...mutantsOf(
    EXECUTOR,
    'volunteer/src/gpu/gradient-encoders.ts',
    ['gpu-encoding'],
    [
      [
        'a step that is repeated forgets what was lost before',
        'const forgets = !isNext && order.residualEpoch !== made.residualEpoch',
        'const forgets = !isNext',
      ],
    ],
  ),
]
