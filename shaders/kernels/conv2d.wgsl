// The products of a convolution through lines (conv2d-lines.wgsl, whose functions these use) in registers; tiles of
// results as in linear.wgsl.

const TALL = TILE_ROWS == 8u;
const WIDE = TILE_COLUMNS == 8u;

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
  let k_end = turns(TAP_QUADS);
  for (var k = 0u; k < k_end; k++) {
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
    let quad_end = turns(OUT_QUADS);
    for (var quad = 0u; quad < quad_end; quad++) {
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
