// Convolution as matrix products over unfolded patches, without barriers or shared memory; squares of results as in linear.wgsl.
// x (B, C, H, W), weight (O, C/G, K, K), y (B, O, P) with P = outHeight · outWidth positions. Per sample and group,
//   patches (TAPS_PADDED, P_PADDED): row t = (channel, ky, kx) holds what tap t sees at each position, row TAPS is all ones;
//   packed  (OUT_PADDED, TAPS_PADDED): a row of weights for each output of the group, with its bias at column TAPS.
// So y = packed · patches includes the bias, and dy · patchesᵀ the bias's gradient. Padding is zero.

// weight, bias → packed; four taps per invocation
@compute @workgroup_size(WORKGROUP)
fn pack(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= GROUPS * OUT_PADDED * TAPS_PADDED / 4u) { return; }
  let row = i / (TAPS_PADDED / 4u);
  let tap = i % (TAPS_PADDED / 4u) * 4u;
  let o = row % OUT_PADDED;
  let output = row / OUT_PADDED * OUT_PER_GROUP + o;
  var value = vec4f();
  if (o < OUT_PER_GROUP) {
    value = vec4f(packed_value(output, tap), packed_value(output, tap + 1u), packed_value(output, tap + 2u), packed_value(output, tap + 3u));
  }
  packed[i] = value;
}

fn packed_value(output: u32, tap: u32) -> f32 {
  if (tap > TAPS) { return 0.0; }
  if (tap == TAPS) { return bias_at(output); }
  return weight[output * TAPS + tap];
}

// x → patches; four positions per invocation
@compute @workgroup_size(WORKGROUP)
fn unfold(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= run.samples * GROUPS * TAPS_PADDED * (P_PADDED / 4u)) { return; }
  let row = i / (P_PADDED / 4u);
  let p = i % (P_PADDED / 4u) * 4u;
  let tap = row % TAPS_PADDED;
  if (tap >= TAPS) {
    patches[i] = vec4f(select(0.0, 1.0, tap == TAPS));
    return;
  }
  let plane = (row / TAPS_PADDED * CHANNELS_PER_GROUP + tap / (KERNEL * KERNEL)) * HEIGHT * WIDTH;
  let ky = tap / KERNEL % KERNEL;
  let kx = tap % KERNEL;
  var line = p / OUT_WIDTH;
  var column = p % OUT_WIDTH;
  var value = vec4f();
  for (var j = 0u; j < 4u; j++) {
    value[j] = input_at(plane, line * STRIDE + ky, column * STRIDE + kx);
    column++;
    if (column == OUT_WIDTH) { column = 0u; line++; }
  }
  patches[i] = value;
}

// Row and column count from the padded edge; unsigned wrap-around makes negative ones too large.
fn input_at(plane: u32, row: u32, column: u32) -> f32 {
  let r = row - PADDING;
  let c = column - PADDING;
  if (r >= HEIGHT || c >= WIDTH) { return 0.0; }
  return x[plane + r * WIDTH + c];
}

// y = packed · patches
@compute @workgroup_size(WORKGROUP)
fn forward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let tile = thread_of(group, lane);
  let p = tile % P_TILES * 8u;
  let o = tile / P_TILES % OUT_TILES * 8u;
  let image = tile / (P_TILES * OUT_TILES); // sample · GROUPS + group
  if (image >= run.samples * GROUPS) { return; }
  let weights = image % GROUPS * OUT_PADDED + o;
  let wa = packed_rows(weights, LAST_PACKED_ROW);
  let wb = packed_rows(weights + 4u, LAST_PACKED_ROW);
  let patch_step = vec4u(4u * patches_stride);
  var patch_rows = (vec4u(0u, 1u, 2u, 3u) + image * TAPS_PADDED) * patches_stride;
  var aa = mat4x4f(); var ab = mat4x4f(); var ba = mat4x4f(); var bb = mat4x4f();
  for (var k = 0u; k < TAPS_PADDED; k += 4u) {
    let q0 = patches_block(patch_rows, p);
    let q1 = patches_block(patch_rows, p + 4u);
    let w0 = packed_block(wa, k);
    let w1 = packed_block(wb, k);
    aa += q0 * w0; ab += q1 * w0; ba += q0 * w1; bb += q1 * w1;
    patch_rows += patch_step;
  }
  let first = image * OUT_PER_GROUP;
  let end = first + OUT_PER_GROUP;
  y_put_block(first + o, end, p, aa);
  y_put_block(first + o, end, p + 4u, ab);
  y_put_block(first + o + 4u, end, p, ba);
  y_put_block(first + o + 4u, end, p + 4u, bb);
}

// dpatches = packedᵀ · dy
@compute @workgroup_size(WORKGROUP)
fn patch_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let tile = thread_of(group, lane);
  let p = tile % P_TILES * 8u;
  let tap = tile / P_TILES % TAP_TILES * 8u;
  let image = tile / (P_TILES * TAP_TILES);
  if (image >= run.samples * GROUPS) { return; }
  let weights = image % GROUPS * OUT_PADDED;
  let outputs = image * OUT_PER_GROUP;
  var aa = mat4x4f(); var ab = mat4x4f(); var ba = mat4x4f(); var bb = mat4x4f();
  for (var k = 0u; k < OUT_PER_GROUP; k += 4u) {
    let dk = dy_rows(outputs + k, outputs + OUT_PER_GROUP - 1u); // rows past the group meet zero weights
    let wk = packed_rows(weights + k, LAST_PACKED_ROW);
    let d0 = dy_block(dk, p);
    let d1 = dy_block(dk, p + 4u);
    let w0 = transpose(packed_block(wk, tap));
    let w1 = transpose(packed_block(wk, tap + 4u));
    aa += d0 * w0; ab += d1 * w0; ba += d0 * w1; bb += d1 * w1;
  }
  let first = image * TAPS_PADDED;
  let end = first + TAPS_PADDED;
  dpatches_put_block(first + tap, end, p, aa);
  dpatches_put_block(first + tap, end, p + 4u, ab);
  dpatches_put_block(first + tap + 4u, end, p, ba);
  dpatches_put_block(first + tap + 4u, end, p + 4u, bb);
}

// dpatches → dx: each input cell gathers from the positions whose window covers it
@compute @workgroup_size(WORKGROUP)
fn fold(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= run.samples * CHANNELS * HEIGHT * WIDTH) { return; }
  let plane = i / (HEIGHT * WIDTH);
  let row = i / WIDTH % HEIGHT + PADDING;
  let column = i % WIDTH + PADDING;
  let image = plane / CHANNELS_PER_GROUP;
  let first = image * TAPS_PADDED + plane % CHANNELS_PER_GROUP * KERNEL * KERNEL;
  var sum = 0.0;
  for (var ky = 0u; ky < KERNEL; ky++) {
    let line = (row - ky) / STRIDE;
    if (row < ky || line * STRIDE != row - ky || line >= OUT_HEIGHT) { continue; }
    for (var kx = 0u; kx < KERNEL; kx++) {
      let position = (column - kx) / STRIDE;
      if (column < kx || position * STRIDE != column - kx || position >= OUT_WIDTH) { continue; }
      sum += dpatches[(first + ky * KERNEL + kx) * P_PADDED + line * OUT_WIDTH + position];
    }
  }
  dx[i] = sum;
}

// partials (SPLITS · G · OUT_PER_GROUP, TAPS_PADDED) = dy · patchesᵀ over the samples of one split
@compute @workgroup_size(WORKGROUP)
fn partial_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let tile = thread_of(group, lane);
  let tap = tile % TAP_TILES * 8u;
  let o = tile / TAP_TILES % OUT_TILES * 8u;
  let g = tile / (TAP_TILES * OUT_TILES) % GROUPS;
  let split = tile / (TAP_TILES * OUT_TILES * GROUPS);
  if (split >= SPLITS) { return; }
  let last_sample = min((split + 1u) * SAMPLES_PER_SPLIT, run.samples);
  var aa = mat4x4f(); var ab = mat4x4f(); var ba = mat4x4f(); var bb = mat4x4f();
  for (var sample = split * SAMPLES_PER_SPLIT; sample < last_sample; sample++) {
    let image = sample * GROUPS + g;
    let outputs = image * OUT_PER_GROUP;
    let taps = image * TAPS_PADDED;
    let da = dy_rows(outputs + o, outputs + OUT_PER_GROUP - 1u);
    let db = dy_rows(outputs + o + 4u, outputs + OUT_PER_GROUP - 1u);
    let qa = patches_rows(taps + tap, taps + TAPS_PADDED - 1u);
    let qb = patches_rows(taps + tap + 4u, taps + TAPS_PADDED - 1u);
    for (var p = 0u; p < P; p += 4u) {
      let d0 = dy_block(da, p);
      let d1 = dy_block(db, p);
      let q0 = transpose(patches_block(qa, p));
      let q1 = transpose(patches_block(qb, p));
      aa += q0 * d0; ab += q1 * d0; ba += q0 * d1; bb += q1 * d1;
    }
  }
  let first = (split * GROUPS + g) * OUT_PER_GROUP;
  let end = first + OUT_PER_GROUP;
  partials_put_block(first + o, end, tap, aa);
  partials_put_block(first + o, end, tap + 4u, ab);
  partials_put_block(first + o + 4u, end, tap, ba);
  partials_put_block(first + o + 4u, end, tap + 4u, bb);
}

// dweight (O, TAPS) and dbias (O,) += Σ over splits of partials, always in the same order; four taps per invocation
@compute @workgroup_size(WORKGROUP)
fn sum_partials(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= GROUPS * OUT_PER_GROUP * TAPS_PADDED / 4u) { return; }
  let used = min(SPLITS, (run.samples + SAMPLES_PER_SPLIT - 1u) / SAMPLES_PER_SPLIT);
  var sum = vec4f();
  for (var split = 0u; split < used; split++) { sum += partials[split * (GROUPS * OUT_PER_GROUP * TAPS_PADDED / 4u) + i]; }
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
