// Convolution through lines, without barriers or shared memory. Here is what is prepared for its matrix products and
// made of their results, and what the products of every family share (conv2d.wgsl, conv2d-subgroup.wgsl). x (B, C, H,
// W), weight (O, C/G, K, K), y (B, O, OUT_HEIGHT, OUT_WIDTH).
//
// Results of a line are computed four at a time: a quad; QUADS quads cover a line of y. For this, x is spread into
// `lines`: a line of QUADS quads for each sample, channel, kernel column kx and padded row r. It has what kx sees at
// each output of the line. Tap (channel, ky, kx) of the outputs in line l is then the quads of row l · STRIDE + ky,
// aligned, whatever the stride and padding. After the last sample follow ROWS lines of ones: the tap of the bias, for
// its gradient.

const LINE_PLANE = ROWS * QUADS;

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
    let seen = vec4f(
      input_at(start, c),
      input_at(start, c + STRIDE),
      input_at(start, c + 2u * STRIDE),
      input_at(start, c + 3u * STRIDE),
    );
    lines[to] = select(vec4f(), seen, row < HEIGHT);
    to += LINE_PLANE;
  }
}

fn input_at(start: u32, column: u32) -> f32 {
  return select(0.0, x[start + min(column, WIDTH - 1u)], column < WIDTH);
}

// weight → packed (G · OUT_PADDED, TAP_QUADS): a row of weights for each output; and where each tap's quads lie in
// `lines`
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

// Where the quads of four taps begin in the first sample; the bias's and those past the last see ones.
fn tap_lines(g: u32, tap: vec4u) -> vec4u {
  return select(vec4u(ONES), g * CHANNELS_PER_GROUP * KERNEL * LINE_PLANE + tap_begin(tap), tap < vec4u(TAPS));
}

fn output_planes(first: u32, last: u32) -> vec4u {
  return min(vec4u(first, first + 1u, first + 2u, first + 3u), vec4u(last)) * OUT_QUADS;
}

fn dy_quads(at: vec4u) -> mat4x4f { return mat4x4f(dy[at.x], dy[at.y], dy[at.z], dy[at.w]); }

// dweight (O, TAPS) and dbias (O,) += Σ over splits of partials, always in the same order; four taps per row of sums
@compute @workgroup_size(WORKGROUP)
fn sum_partials(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = row_of(group, lane);
  if (i >= OUT * TAPS_PADDED / 4u) { return; }
  var sum = vec4f();
  let split_end = turns(SPLITS);
  for (var split = sharer(lane); split < split_end; split += SHARERS) {
    sum += partials[split * (OUT * TAPS_PADDED / 4u) + i];
  }
  sum = sum_of_row(lane, sum);
  if (sharer(lane) > 0u) { return; }
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

// weight → packed (G · SEERS_PADDED · K, OUT4): for each seer, a pair (channel, kx) of the group, and kernel row its
// weights
@compute @workgroup_size(WORKGROUP)
fn pack_seers(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= GROUPS * SEERS_PADDED * KERNEL * OUT4) { return; }
  let o = i % OUT4;
  let row = i / OUT4; // (group · SEERS_PADDED + seer) · KERNEL + ky
  let seer = row / KERNEL % SEERS_PADDED;
  let output = row / (KERNEL * SEERS_PADDED) * OUT_PER_GROUP + o;
  let tap = (seer / KERNEL * KERNEL + row % KERNEL) * KERNEL + seer % KERNEL;
  packed[i] = select(
    0.0,
    weight[min(output, OUT - 1u) * TAPS + min(tap, TAPS - 1u)],
    seer < SEERS && o < OUT_PER_GROUP,
  );
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
    sum += vec4f(
      line_at(at, column, kx),
      line_at(at, column + 1u, kx),
      line_at(at, column + 2u, kx),
      line_at(at, column + 3u, kx),
    );
    at += HEIGHT * QUADS * 4u;
  }
  dx_put(row, column, sum);
}

fn line_at(at: u32, column: u32, kx: u32) -> f32 {
  let position = output_at(column, kx, OUT_WIDTH);
  return select(dlines[at + min(position, OUT_WIDTH - 1u)], 0.0, position == NOWHERE);
}
