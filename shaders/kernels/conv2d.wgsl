// Convolution as matrix products without barriers or shared memory; tiles of results as in linear.wgsl.
// x (B, C, H, W), weight (O, C/G, K, K), y (B, O, OUT_HEIGHT, OUT_WIDTH).
//
// Results of a line are computed four at a time: a quad; QUADS quads cover a line of y. For this, x is spread into `lines`:
// for each sample, channel, kernel column kx and padded row r a line of QUADS quads, with what kx sees at each output of the line.
// Tap (channel, ky, kx) of the outputs in line l is then the quads of row l · STRIDE + ky, aligned, whatever the stride and padding.
// After the last sample follow ROWS lines of ones: the tap of the bias, for its gradient.

const LINE_PLANE = ROWS * QUADS;
const TALL = TILE_ROWS == 8u;
const WIDE = TILE_COLUMNS == 8u;

// x → lines; one quad of every kernel column per invocation
@compute @workgroup_size(WORKGROUP)
fn spread(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  let count = run.samples * CHANNELS * LINE_PLANE;
  if (i >= count) {
    if (i < count + LINE_PLANE) { lines[ONES + i - count] = vec4f(1.0); }
    return;
  }
  let plane = i / LINE_PLANE;
  let row = i / QUADS % ROWS - PADDING; // wraps around above the input
  let column = i % QUADS * 4u * STRIDE - PADDING;
  let start = (plane * HEIGHT + min(row, HEIGHT - 1u)) * WIDTH;
  var to = plane * KERNEL * LINE_PLANE + i % LINE_PLANE;
  for (var kx = 0u; kx < KERNEL; kx++) {
    let c = column + kx;
    let seen = vec4f(input_at(start, c), input_at(start, c + STRIDE), input_at(start, c + 2u * STRIDE), input_at(start, c + 3u * STRIDE));
    lines[to] = select(vec4f(), seen, row < HEIGHT);
    to += LINE_PLANE;
  }
}

fn input_at(start: u32, column: u32) -> f32 {
  return select(0.0, x[start + min(column, WIDTH - 1u)], column < WIDTH);
}

// weight → packed (G · OUT_PADDED, TAP_QUADS): a row of weights for each output; and where each tap's quads lie in `lines`
@compute @workgroup_size(WORKGROUP)
fn pack_taps(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= GROUPS * OUT_PADDED * TAP_QUADS) { return; }
  let tap = i % TAP_QUADS * 4u + vec4u(0u, 1u, 2u, 3u);
  let row = i / TAP_QUADS;
  let o = row % OUT_PADDED;
  let start = min(row / OUT_PADDED * OUT_PER_GROUP + o, OUT - 1u) * TAPS;
  let t = min(tap, vec4u(TAPS - 1u));
  let values = vec4f(weight[start + t.x], weight[start + t.y], weight[start + t.z], weight[start + t.w]);
  packed[i] = select(vec4f(), values, (tap < vec4u(TAPS)) & vec4<bool>(o < OUT_PER_GROUP));
  if (row == 0u) { taps[i] = tap_begin(t); }
}

// Where the quads of four taps begin, from those of the group's first channel.
fn tap_begin(tap: vec4u) -> vec4u {
  return (tap / (KERNEL * KERNEL) * KERNEL + tap % KERNEL) * LINE_PLANE + tap / KERNEL % KERNEL * QUADS;
}

// y = bias + Σ over taps of weight · lines
@compute @workgroup_size(WORKGROUP)
fn forward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let tile = thread_of(group, lane);
  let image = tile / (OUT_PAIRS * OUT_TILES); // sample · GROUPS + group
  if (image >= run.samples * GROUPS) { return; }
  let o = tile / OUT_PAIRS % OUT_TILES * TILE_ROWS;
  let quad0 = tile % OUT_PAIRS * (TILE_COLUMNS / 4u);
  let quad1 = min(quad0 + 1u, OUT_QUADS - 1u);
  let first_line = image * CHANNELS_PER_GROUP * KERNEL * LINE_PLANE;
  let at0 = vec4u(first_line + line_quad(quad0));
  let at1 = vec4u(first_line + line_quad(quad1));
  let w = (image % GROUPS * OUT_PADDED + o) * TAP_QUADS;
  let bias_index = image % GROUPS * OUT_PER_GROUP + o;
  var aa = bias_block(bias_index);
  var ba = bias_block(bias_index + 4u);
  var ab = aa;
  var bb = ba;
  for (var k = 0u; k < turns(TAP_QUADS); k++) {
    let tap = taps[k];
    let p0 = line_quads(at0 + tap);
    let w0 = packed_rows(w + k, TAP_QUADS);
    var p1 = mat4x4f();
    aa += p0 * w0;
    if (WIDE) { p1 = line_quads(at1 + tap); ab += p1 * w0; }
    if (TALL) {
      let w1 = packed_rows(w + k + 4u * TAP_QUADS, TAP_QUADS);
      ba += p0 * w1;
      if (WIDE) { bb += p1 * w1; }
    }
  }
  let first = image * OUT_PER_GROUP;
  let end = first + OUT_PER_GROUP;
  put_outputs(first + o, end, quad0, aa);
  if (WIDE) { put_outputs(first + o, end, quad1, ab); }
  if (TALL) { put_outputs(first + o + 4u, end, quad0, ba); }
  if (TALL && WIDE) { put_outputs(first + o + 4u, end, quad1, bb); }
}

fn packed_rows(at: u32, stride: u32) -> mat4x4f {
  return mat4x4f(packed[at], packed[at + stride], packed[at + 2u * stride], packed[at + 3u * stride]);
}

fn line_quads(at: vec4u) -> mat4x4f { return mat4x4f(lines[at.x], lines[at.y], lines[at.z], lines[at.w]); }

fn bias_block(i: u32) -> mat4x4f {
  return mat4x4f(vec4f(bias_at(i)), vec4f(bias_at(i + 1u)), vec4f(bias_at(i + 2u)), vec4f(bias_at(i + 3u)));
}

// Columns of `block` are four outputs of one quad.
fn put_outputs(output: u32, end: u32, quad: u32, block: mat4x4f) {
  let row = output * OUT_HEIGHT + quad / QUADS;
  let column = quad % QUADS * 4u;
  if (output < end) { y_put(row, column, block[0]); }
  if (output + 1u < end) { y_put(row + OUT_HEIGHT, column, block[1]); }
  if (output + 2u < end) { y_put(row + 2u * OUT_HEIGHT, column, block[2]); }
  if (output + 3u < end) { y_put(row + 3u * OUT_HEIGHT, column, block[3]); }
}

// Where in a plane of `lines` the quad of an output begins, for ky = 0.
fn line_quad(quad: u32) -> u32 {
  if (STRIDE == 1u) { return quad; }
  return quad / QUADS * STRIDE * QUADS + quad % QUADS;
}

// dy with lines that are no whole number of quads → aligned, zeros at the end of each line
@compute @workgroup_size(WORKGROUP)
fn align(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= run.samples * OUT * OUT_QUADS) { return; }
  aligned[i] = ragged_quad(i / QUADS * ragged_stride, i % QUADS * 4u);
}

// partials (SPLITS · O, TAPS_PADDED) = Σ over the samples of one split of dy · lines; tap TAPS belongs to the bias
@compute @workgroup_size(WORKGROUP)
fn partial_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let tile = thread_of(group, lane);
  let split = tile / (TAP_TILES * OUT_TILES * GROUPS);
  if (split >= SPLITS) { return; }
  let tap = tile % TAP_TILES * TILE_COLUMNS;
  let o = tile / TAP_TILES % OUT_TILES * TILE_ROWS;
  let g = tile / (TAP_TILES * OUT_TILES) % GROUPS;
  let taps0 = tap_lines(g, vec4u(tap, tap + 1u, tap + 2u, tap + 3u));
  let taps1 = tap_lines(g, vec4u(tap + 4u, tap + 5u, tap + 6u, tap + 7u));
  let last_sample = min((split + 1u) * SAMPLES_PER_SPLIT, run.samples);
  var aa = mat4x4f(); var ab = mat4x4f(); var ba = mat4x4f(); var bb = mat4x4f();
  for (var sample = split * SAMPLES_PER_SPLIT; sample < last_sample; sample++) {
    let first = sample * OUT + g * OUT_PER_GROUP;
    let d0 = output_planes(first + o, first + OUT_PER_GROUP - 1u);
    let d1 = output_planes(first + o + 4u, first + OUT_PER_GROUP - 1u);
    let from0 = select(taps0 + sample * CHANNELS * KERNEL * LINE_PLANE, vec4u(ONES), taps0 == vec4u(ONES));
    let from1 = select(taps1 + sample * CHANNELS * KERNEL * LINE_PLANE, vec4u(ONES), taps1 == vec4u(ONES));
    for (var quad = 0u; quad < turns(OUT_QUADS); quad++) {
      let a0 = dy_quads(d0 + quad);
      let q0 = transpose(line_quads(from0 + line_quad(quad)));
      var q1 = mat4x4f();
      aa += q0 * a0;
      if (WIDE) { q1 = transpose(line_quads(from1 + line_quad(quad))); ab += q1 * a0; }
      if (TALL) {
        let a1 = dy_quads(d1 + quad);
        ba += q0 * a1;
        if (WIDE) { bb += q1 * a1; }
      }
    }
  }
  let first = (split * GROUPS + g) * OUT_PER_GROUP;
  let end = first + OUT_PER_GROUP;
  partials_put_block(first + o, end, tap, aa);
  if (WIDE) { partials_put_block(first + o, end, tap + 4u, ab); }
  if (TALL) { partials_put_block(first + o + 4u, end, tap, ba); }
  if (TALL && WIDE) { partials_put_block(first + o + 4u, end, tap + 4u, bb); }
}

// Where the quads of four taps begin in the first sample; the bias's and those past the last see ones.
fn tap_lines(g: u32, tap: vec4u) -> vec4u {
  return select(vec4u(ONES), g * CHANNELS_PER_GROUP * KERNEL * LINE_PLANE + tap_begin(tap), tap < vec4u(TAPS));
}

fn output_planes(first: u32, last: u32) -> vec4u {
  return min(vec4u(first, first + 1u, first + 2u, first + 3u), vec4u(last)) * OUT_QUADS;
}

fn dy_quads(at: vec4u) -> mat4x4f { return mat4x4f(dy[at.x], dy[at.y], dy[at.z], dy[at.w]); }

// dweight (O, TAPS) and dbias (O,) += Σ over splits of partials, always in the same order; four taps per invocation
@compute @workgroup_size(WORKGROUP)
fn sum_partials(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= OUT * TAPS_PADDED / 4u) { return; }
  var sum = vec4f();
  for (var split = 0u; split < turns(SPLITS); split++) { sum += partials[split * (OUT * TAPS_PADDED / 4u) + i]; }
  let output = i / (TAPS_PADDED / 4u);
  let tap = i % (TAPS_PADDED / 4u) * 4u;
  add_gradient(output, tap, sum.x);
  add_gradient(output, tap + 1u, sum.y);
  add_gradient(output, tap + 2u, sum.z);
  add_gradient(output, tap + 3u, sum.w);
}

fn add_gradient(output: u32, tap: u32, value: f32) {
  if (tap < TAPS) { dweight[output * TAPS + tap] += value; }
  if (tap == TAPS) { dbias_add(output, value); }
}

// weight → packed (G · SEERS_PADDED · K, OUT4): for each seer, a pair (channel, kx) of the group, and kernel row its weights
@compute @workgroup_size(WORKGROUP)
fn pack_seers(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= GROUPS * SEERS_PADDED * KERNEL * OUT4) { return; }
  let o = i % OUT4;
  let row = i / OUT4; // (group · SEERS_PADDED + seer) · KERNEL + ky
  let seer = row / KERNEL % SEERS_PADDED;
  let output = row / (KERNEL * SEERS_PADDED) * OUT_PER_GROUP + o;
  let tap = (seer / KERNEL * KERNEL + row % KERNEL) * KERNEL + seer % KERNEL;
  packed[i] = select(0.0, weight[min(output, OUT - 1u) * TAPS + min(tap, TAPS - 1u)], seer < SEERS && o < OUT_PER_GROUP);
}

// dlines (B · G · SEERS, HEIGHT, QUADS): the gradient of what each seer saw, summed over outputs and kernel rows
@compute @workgroup_size(WORKGROUP)
fn line_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let tile = thread_of(group, lane);
  let image = tile / (IN_PAIRS * SEER_TILES);
  if (image >= run.samples * GROUPS) { return; }
  let seer = tile / IN_PAIRS % SEER_TILES * TILE_ROWS;
  let quad0 = tile % IN_PAIRS * (TILE_COLUMNS / 4u);
  let quad1 = min(quad0 + 1u, HEIGHT * QUADS - 1u);
  let row0 = quad0 / QUADS;
  let row1 = quad1 / QUADS;
  let column0 = quad0 % QUADS;
  let column1 = quad1 % QUADS;
  let outputs = image * OUT_PER_GROUP;
  let weights = (image % GROUPS * SEERS_PADDED + seer) * KERNEL;
  var aa = mat4x4f(); var ab = mat4x4f(); var ba = mat4x4f(); var bb = mat4x4f();
  // One loop over kernel rows and outputs: software adapters merge all results at the end of every nested one.
  let kernel_rows = kernel_rows_over(row0, row1);
  var ky = kernel_rows.x;
  var o = 0u;
  while (ky < kernel_rows.y) {
    let line0 = output_at(row0, ky, OUT_HEIGHT);
    let line1 = output_at(row1, ky, OUT_HEIGHT);
    let planes = output_planes(outputs + o, outputs + OUT_PER_GROUP - 1u);
    let d0 = dy_quads(planes + min(line0, OUT_HEIGHT - 1u) * QUADS + column0) * select(1.0, 0.0, line0 == NOWHERE);
    var d1 = mat4x4f();
    let w = ((weights + ky) * OUT4 + o) / 4u;
    let w0 = packed_rows(w, KERNEL * OUT4 / 4u);
    aa += d0 * w0;
    if (WIDE) {
      d1 = dy_quads(planes + min(line1, OUT_HEIGHT - 1u) * QUADS + column1) * select(1.0, 0.0, line1 == NOWHERE);
      ab += d1 * w0;
    }
    if (TALL) {
      let w1 = packed_rows(w + KERNEL * OUT4, KERNEL * OUT4 / 4u);
      ba += d0 * w1;
      if (WIDE) { bb += d1 * w1; }
    }
    o += 4u;
    ky += select(0u, 1u, o == OUT4);
    o = select(o, 0u, o == OUT4);
  }
  let first = image * SEERS;
  let end = first + SEERS;
  put_lines(first + seer, end, quad0, aa);
  if (WIDE) { put_lines(first + seer, end, quad1, ab); }
  if (TALL) { put_lines(first + seer + 4u, end, quad0, ba); }
  if (TALL && WIDE) { put_lines(first + seer + 4u, end, quad1, bb); }
}

// First and end of the kernel rows that connect any output to input lines row0 … row1.
fn kernel_rows_over(row0: u32, row1: u32) -> vec2u {
  let lowest = (OUT_HEIGHT - 1u) * STRIDE;
  return vec2u(max(row0 + PADDING, lowest) - lowest, min(row1 + PADDING + 1u, KERNEL));
}

// Columns of `block` are four seers of one quad.
fn put_lines(seer: u32, end: u32, quad: u32, block: mat4x4f) {
  let to = seer * (HEIGHT * QUADS) + quad;
  if (seer < end) { dlines[to] = block[0]; }
  if (seer + 1u < end) { dlines[to + HEIGHT * QUADS] = block[1]; }
  if (seer + 2u < end) { dlines[to + 2u * HEIGHT * QUADS] = block[2]; }
  if (seer + 3u < end) { dlines[to + 3u * HEIGHT * QUADS] = block[3]; }
}

const NOWHERE = 0xffffffffu;

// The output along one axis that sees input cell `at` with kernel cell `tap`, of `count`; NOWHERE if there is none.
fn output_at(at: u32, tap: u32, count: u32) -> u32 {
  let shifted = at + PADDING - tap; // wraps around before the first output
  if (STRIDE == 1u) { return select(NOWHERE, shifted, shifted < count); }
  let found = shifted / STRIDE;
  return select(NOWHERE, found, found < count && found * STRIDE == shifted);
}

// dlines → dx: each input cell gathers over kernel columns; four cells of a line per invocation
@compute @workgroup_size(WORKGROUP)
fn gather_lines(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= run.samples * CHANNELS * HEIGHT * IN_QUADS) { return; }
  let row = i / IN_QUADS; // (sample · CHANNELS + channel) · HEIGHT + line
  let column = i % IN_QUADS * 4u;
  var at = (row / HEIGHT * KERNEL * HEIGHT + row % HEIGHT) * QUADS * 4u;
  var sum = vec4f();
  for (var kx = 0u; kx < KERNEL; kx++) {
    sum += vec4f(line_at(at, column, kx), line_at(at, column + 1u, kx), line_at(at, column + 2u, kx), line_at(at, column + 3u, kx));
    at += HEIGHT * QUADS * 4u;
  }
  dx_put(row, column, sum);
}

fn line_at(at: u32, column: u32, kx: u32) -> f32 {
  let position = output_at(column, kx, OUT_WIDTH);
  return select(dlines[at + min(position, OUT_WIDTH - 1u)], 0.0, position == NOWHERE);
}
