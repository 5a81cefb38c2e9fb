// Convolution on GPUs as matrix products whose operands are gathered while tiles are filled (see tile-product.wgsl).
// x (B, C, H, W), weight (O, C/G, K, K), y (B, O, OUT_HEIGHT, OUT_WIDTH). Positions of a plane are counted with padding
// to whole quads, so that four neighbours never belong to two samples. Tap TAPS, one past the weights, is the bias's:
// it sees ones.

const PLANE = OUT_HEIGHT * OUT_WIDTH;
const PADDED_PLANE = (PLANE + 3u) / 4u * 4u;
const IN_PLANE = HEIGHT * WIDTH;
const PADDED_IN_PLANE = (IN_PLANE + 3u) / 4u * 4u;
const WINDOW = KERNEL * KERNEL;

// y: M outputs of a group, N positions of y over all samples, K taps
@compute @workgroup_size(WORKGROUP)
fn forward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let tile = group_of(group);
  let g = tile / TILES_M % GROUPS;
  let m = tile % TILES_M * TILE_M;
  let n = tile / (TILES_M * GROUPS) * TILE_N;
  let count = run.samples * PADDED_PLANE;
  if (n >= count) { return; }
  var sums = Sums();
  let corner = vec4u(g, m, n, count);
  var next = bring_forward(lane, corner, 0u);
  for (var k = 0u; k < TAPS; k += SLAB) {
    put_slab(lane, next);
    workgroupBarrier();
    if (k + SLAB < TAPS) { next = bring_forward(lane, corner, k + SLAB); }
    add_slab(&sums, lane);
    workgroupBarrier();
  }
  for (var i = 0u; i < OWN_BLOCKS; i++) {
    let at = own_place(lane, i);
    put_outputs(g, m + at.x, n + at.y, own_sums(&sums, i));
  }
}

// tile: group, first row and column, the end of the positions
fn bring_forward(lane: u32, tile: vec4u, k: u32) -> Brought {
  var brought = Brought();
  brought.a = forward_block(lane, tile, k);
  if (BLOCKS > WORKGROUP) { brought.b = forward_block(lane + WORKGROUP, tile, k); }
  if (BLOCKS > 2u * WORKGROUP) { brought.c = forward_block(lane + 2u * WORKGROUP, tile, k); }
  return brought;
}

fn forward_block(i: u32, tile: vec4u, k: u32) -> mat4x4f {
  let place = block_at(i);
  if (i < BLOCKS_A) { return weights_of(tile.x, tile.y + place.x, k + place.y); }
  if (i >= BLOCKS) { return mat4x4f(); }
  return seen_at(tile.x, min(tile.z + place.x, tile.w - 1u), k + place.y);
}

// Weights of four outputs, for four taps.
fn weights_of(g: u32, m: u32, tap: u32) -> mat4x4f {
  if (tap >= TAPS) { return mat4x4f(); }
  return transpose(weight_block(weight_rows(g * OUT_PER_GROUP + m, (g + 1u) * OUT_PER_GROUP - 1u), tap));
}

// What four taps see at four neighbouring positions of y: a column per tap.
fn seen_at(g: u32, position: u32, tap: u32) -> mat4x4f {
  let p = min(position % PADDED_PLANE + vec4u(0u, 1u, 2u, 3u), vec4u(PLANE - 1u));
  let image = (position / PADDED_PLANE * CHANNELS + g * CHANNELS_PER_GROUP) * IN_PLANE;
  let top = p / OUT_WIDTH * STRIDE - PADDING; // wraps around above the input, and to its left
  let left = p % OUT_WIDTH * STRIDE - PADDING;
  return mat4x4f(
    seen(image, top, left, tap),
    seen(image, top, left, tap + 1u),
    seen(image, top, left, tap + 2u),
    seen(image, top, left, tap + 3u),
  );
}

fn seen(image: u32, top: vec4u, left: vec4u, tap: u32) -> vec4f {
  if (tap >= TAPS) { return vec4f(select(0.0, 1.0, tap == TAPS)); }
  let row = top + tap / KERNEL % KERNEL;
  let column = left + tap % KERNEL;
  let inside = (row < vec4u(HEIGHT)) & (column < vec4u(WIDTH));
  let at = select(vec4u(), row * WIDTH + column, inside) + image + tap / WINDOW * IN_PLANE;
  return select(vec4f(), vec4f(x[at.x], x[at.y], x[at.z], x[at.w]), inside);
}

// Columns of `block` are four outputs at four neighbouring positions.
fn put_outputs(g: u32, m: u32, position: u32, block: mat4x4f) {
  if (position >= run.samples * PADDED_PLANE) { return; }
  let first = position / PADDED_PLANE * OUT + g * OUT_PER_GROUP;
  let p = position % PADDED_PLANE;
  for (var i = 0u; i < 4u; i++) {
    if (m + i < OUT_PER_GROUP) { y_put(first + m + i, p, block[i] + bias_at(g * OUT_PER_GROUP + m + i)); }
  }
}

// dx: M channels of a group, N positions of x over all samples, K outputs of the group × kernel cells
@compute @workgroup_size(WORKGROUP)
fn input_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let tile = group_of(group);
  let g = tile / TILES_M % GROUPS;
  let m = tile % TILES_M * TILE_M;
  let n = tile / (TILES_M * GROUPS) * TILE_N;
  let count = run.samples * PADDED_IN_PLANE;
  if (n >= count) { return; }
  var sums = Sums();
  let corner = vec4u(g, m, n, count);
  var next = bring_input(lane, corner, 0u);
  for (var k = 0u; k < OUT_PER_GROUP * WINDOW; k += SLAB) {
    put_slab(lane, next);
    workgroupBarrier();
    if (k + SLAB < OUT_PER_GROUP * WINDOW) { next = bring_input(lane, corner, k + SLAB); }
    add_slab(&sums, lane);
    workgroupBarrier();
  }
  for (var i = 0u; i < OWN_BLOCKS; i++) {
    let at = own_place(lane, i);
    put_inputs(g, m + at.x, n + at.y, own_sums(&sums, i));
  }
}

// tile: group, first row and column, the end of the positions
fn bring_input(lane: u32, tile: vec4u, k: u32) -> Brought {
  var brought = Brought();
  brought.a = input_block(lane, tile, k);
  if (BLOCKS > WORKGROUP) { brought.b = input_block(lane + WORKGROUP, tile, k); }
  if (BLOCKS > 2u * WORKGROUP) { brought.c = input_block(lane + 2u * WORKGROUP, tile, k); }
  return brought;
}

fn input_block(i: u32, tile: vec4u, k: u32) -> mat4x4f {
  let place = block_at(i);
  if (i < BLOCKS_A) { return weights_from(tile.x, tile.y + place.x, k + place.y); }
  if (i >= BLOCKS) { return mat4x4f(); }
  return gradients_at(tile.x, min(tile.z + place.x, tile.w - 1u), k + place.y);
}

// Weights of four channels, for four pairs of output and kernel cell.
fn weights_from(g: u32, m: u32, pair: u32) -> mat4x4f {
  return mat4x4f(
    weight_from(g, m, pair),
    weight_from(g, m, pair + 1u),
    weight_from(g, m, pair + 2u),
    weight_from(g, m, pair + 3u),
  );
}

fn weight_from(g: u32, m: u32, pair: u32) -> vec4f {
  if (pair >= OUT_PER_GROUP * WINDOW) { return vec4f(); }
  let channel = min(m + vec4u(0u, 1u, 2u, 3u), vec4u(CHANNELS_PER_GROUP - 1u));
  let at = (g * OUT_PER_GROUP + pair / WINDOW) * TAPS + channel * WINDOW + pair % WINDOW;
  return vec4f(weight[at.x], weight[at.y], weight[at.z], weight[at.w]);
}

// dy where four pairs of output and kernel cell see four neighbouring positions of x: a column per pair.
fn gradients_at(g: u32, position: u32, pair: u32) -> mat4x4f {
  let p = min(position % PADDED_IN_PLANE + vec4u(0u, 1u, 2u, 3u), vec4u(IN_PLANE - 1u));
  let first = position / PADDED_IN_PLANE * OUT + g * OUT_PER_GROUP;
  let row = p / WIDTH + PADDING;
  let column = p % WIDTH + PADDING;
  return mat4x4f(
    gradient_of(first, row, column, pair), gradient_of(first, row, column, pair + 1u),
    gradient_of(first, row, column, pair + 2u), gradient_of(first, row, column, pair + 3u),
  );
}

fn gradient_of(first: u32, row: vec4u, column: vec4u, pair: u32) -> vec4f {
  if (pair >= OUT_PER_GROUP * WINDOW) { return vec4f(); }
  let down = row - pair / KERNEL % KERNEL; // wraps around before the first output
  let across = column - pair % KERNEL;
  let out_row = down / STRIDE;
  let out_column = across / STRIDE;
  let in_rows = (out_row < vec4u(OUT_HEIGHT)) & (out_row * STRIDE == down);
  let sees = in_rows & (out_column < vec4u(OUT_WIDTH)) & (out_column * STRIDE == across);
  let at = select(vec4u(), out_row * OUT_WIDTH + out_column, sees) + (first + pair / WINDOW) * PLANE;
  return select(vec4f(), vec4f(dy[at.x], dy[at.y], dy[at.z], dy[at.w]), sees);
}

fn put_inputs(g: u32, m: u32, position: u32, block: mat4x4f) {
  if (position >= run.samples * PADDED_IN_PLANE) { return; }
  let first = position / PADDED_IN_PLANE * CHANNELS + g * CHANNELS_PER_GROUP;
  let p = position % PADDED_IN_PLANE;
  for (var i = 0u; i < 4u; i++) { if (m + i < CHANNELS_PER_GROUP) { dx_put(first + m + i, p, block[i]); } }
}

// partials (SPLITS · O, TAPS_PADDED): M outputs of a group, N taps and the bias's, K the positions of one split
@compute @workgroup_size(WORKGROUP)
fn partial_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let tile = group_of(group);
  let n = tile % TILES_N * TILE_N;
  let m = tile / TILES_N % TILES_M * TILE_M;
  let g = tile / (TILES_N * TILES_M) % GROUPS;
  let split = tile / (TILES_N * TILES_M * GROUPS);
  let end = min((split + 1u) * POSITIONS_PER_SPLIT, run.samples * PADDED_PLANE);
  if (split >= SPLITS) { return; }
  var sums = Sums();
  let corner = vec4u(g, m, n, end);
  var next = bring_partial(lane, corner, split * POSITIONS_PER_SPLIT);
  for (var k = split * POSITIONS_PER_SPLIT; k < end; k += SLAB) {
    put_slab(lane, next);
    workgroupBarrier();
    if (k + SLAB < end) { next = bring_partial(lane, corner, k + SLAB); }
    add_slab(&sums, lane);
    workgroupBarrier();
  }
  let first = (split * GROUPS + g) * OUT_PER_GROUP;
  for (var i = 0u; i < OWN_BLOCKS; i++) {
    let at = own_place(lane, i);
    put_partials(first, m + at.x, n + at.y, own_sums(&sums, i));
  }
}

// tile: group, first row and column, the end of the positions
fn bring_partial(lane: u32, tile: vec4u, k: u32) -> Brought {
  var brought = Brought();
  brought.a = partial_block(lane, tile, k);
  if (BLOCKS > WORKGROUP) { brought.b = partial_block(lane + WORKGROUP, tile, k); }
  if (BLOCKS > 2u * WORKGROUP) { brought.c = partial_block(lane + 2u * WORKGROUP, tile, k); }
  return brought;
}

fn partial_block(i: u32, tile: vec4u, k: u32) -> mat4x4f {
  let place = block_at(i);
  if (i < BLOCKS_A) { return gradients_of(tile.x, tile.y + place.x, k + place.y, tile.w); }
  if (i >= BLOCKS) { return mat4x4f(); }
  return transpose(seen_at(tile.x, min(k + place.y, tile.w - 1u), tile.z + place.x));
}

// dy of four outputs at four neighbouring positions; nothing past the end of the split or of the plane.
fn gradients_of(g: u32, m: u32, position: u32, end: u32) -> mat4x4f {
  if (position >= end) { return mat4x4f(); }
  let first = position / PADDED_PLANE * OUT + g * OUT_PER_GROUP;
  return transpose(dy_block(dy_rows(first + m, first + OUT_PER_GROUP - 1u), position % PADDED_PLANE));
}

fn put_partials(first: u32, m: u32, tap: u32, block: mat4x4f) {
  partials_put_block(first + m, first + OUT_PER_GROUP, tap, block);
}
