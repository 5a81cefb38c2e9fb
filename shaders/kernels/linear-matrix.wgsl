// Matrix products of the linear layer on matrix units (see matrix-product.wgsl), all three directions by one entry
// point. Operands, sizes and splits are those of linear-shared.wgsl. For plans in f16 alone: what is stored as f16 is
// taken as it is, what is stored as f32 is rounded as it is brought.

@compute @workgroup_size(WORKGROUP)
fn product(
  @builtin(workgroup_id) group: vec3u,
  @builtin(local_invocation_index) lane: u32,
  @builtin(subgroup_id) subgroup: u32,
  @builtin(subgroup_invocation_id) place: u32,
) {
  let tile = group_of(group);
  let split = tile / (TILES_N * TILES_M);
  let m = tile / TILES_N % TILES_M * TILE_M;
  let n = tile % TILES_N * TILE_N;
  let count_m = select(M, run.samples * ROWS_M, ROWS_M > 0u);
  let count_k = select(K, run.samples * ROWS_K, ROWS_K > 0u);
  let last_k = min((split + 1u) * K_PER_SPLIT, count_k);
  if (m >= count_m || split >= SPLITS) { return; }
  var sums = Sums();
  let first_k = split * K_PER_SPLIT;
  let own = own_place(subgroup);
  let corner = vec4u(m, n, count_m - 1u, last_k);
  var next = bring(lane, corner, first_k);
  for (var k = first_k; k < last_k; k += SLAB) {
    put_slab(lane, next);
    workgroupBarrier();
    // Past the last slab, too: without a branch, compilers mix these loads with the products.
    next = bring(lane, corner, k + SLAB);
    add_slab(&sums, own);
    workgroupBarrier();
  }
  let at = vec4u(m + 16u * own.x, n + 16u * own.y, count_m, split);
  write_row(sums.a, subgroup, place, at);
  if (OWN_M > 1u) { write_row(sums.b, subgroup, place, at + vec4u(16u, 0u, 0u, 0u)); }
  if (OWN_M > 2u) {
    write_row(sums.c, subgroup, place, at + vec4u(32u, 0u, 0u, 0u));
    write_row(sums.d, subgroup, place, at + vec4u(48u, 0u, 0u, 0u));
  }
}

fn bring(lane: u32, corner: vec4u, k: u32) -> Brought {
  var brought = Brought();
  brought.a[0] = quad_of_a(lane, corner, k);
  brought.a[1] = quad_of_a(lane + WORKGROUP, corner, k);
  if (A_EACH > 2u) {
    brought.a[2] = quad_of_a(lane + 2u * WORKGROUP, corner, k);
    brought.a[3] = quad_of_a(lane + 3u * WORKGROUP, corner, k);
  }
  if (A_EACH > 4u) {
    brought.a[4] = quad_of_a(lane + 4u * WORKGROUP, corner, k);
    brought.a[5] = quad_of_a(lane + 5u * WORKGROUP, corner, k);
    brought.a[6] = quad_of_a(lane + 6u * WORKGROUP, corner, k);
    brought.a[7] = quad_of_a(lane + 7u * WORKGROUP, corner, k);
  }
  brought.b[0] = quad_of_b(lane, corner, k);
  brought.b[1] = quad_of_b(lane + WORKGROUP, corner, k);
  if (B_EACH > 2u) {
    brought.b[2] = quad_of_b(lane + 2u * WORKGROUP, corner, k);
    brought.b[3] = quad_of_b(lane + 3u * WORKGROUP, corner, k);
  }
  if (B_EACH > 4u) {
    brought.b[4] = quad_of_b(lane + 4u * WORKGROUP, corner, k);
    brought.b[5] = quad_of_b(lane + 5u * WORKGROUP, corner, k);
    brought.b[6] = quad_of_b(lane + 6u * WORKGROUP, corner, k);
    brought.b[7] = quad_of_b(lane + 7u * WORKGROUP, corner, k);
  }
  return brought;
}

// corner: the tile's first row and column, the last row, the end of k
fn quad_of_a(i: u32, corner: vec4u, k: u32) -> vec4h {
  let line = i / A_QUADS;
  let c = i % A_QUADS * 4u;
  if (A_ALONG_K == 1u) {
    let quad = left_quad(min(corner.x + line, corner.z) * left_stride, min(k + c, LAST_QUAD_K));
    return before(vec4h(quad), k + c, corner.w);
  }
  let quad = left_quad(min(k + line, corner.w - 1u) * left_stride, min(corner.x + c, LAST_QUAD_M));
  return before(vec4h(quad), k + line, corner.w);
}

fn quad_of_b(i: u32, corner: vec4u, k: u32) -> vec4h {
  let line = i / B_QUADS;
  let c = i % B_QUADS * 4u;
  if (B_ALONG_K == 1u) {
    let quad = right_quad(min(corner.y + line, N - 1u) * right_stride, min(k + c, LAST_QUAD_K));
    return before(half_of_b(quad), k + c, corner.w);
  }
  let quad = right_quad(min(k + line, corner.w - 1u) * right_stride, min(corner.y + c, LAST_QUAD_N));
  return before(half_of_b(quad), k + line, corner.w);
}

// Weights past the end of f16 stay at its end: as infinities they would make each gradient overflow, at every loss
// scale. Values and gradients are not clamped: theirs must show, so that the loss scale halves.
fn half_of_b(quad: vec4f) -> vec4h {
  if (B_IS_WEIGHT == 1u) { return vec4h(clamp(quad, vec4f(-65504.0), vec4f(65504.0))); }
  return vec4h(quad);
}

// Steps past the end of k count as 0. A quad has as many steps as its matrix has columns: those past them read as 0.
fn before(quad: vec4h, k: u32, end: u32) -> vec4h {
  if (WHOLE_SLABS == 1u) { return quad; }
  return select(vec4h(), quad, k < end);
}

// at: the first row and column of the matrix, the end of the rows, the split
fn write_row(row: Row, subgroup: u32, place: u32, at: vec4u) {
  write_matrix(row.parts[0], subgroup, place, at);
  if (OWN_N > 1u) { write_matrix(row.parts[1], subgroup, place, at + vec4u(0u, 16u, 0u, 0u)); }
  if (OWN_N > 2u) {
    write_matrix(row.parts[2], subgroup, place, at + vec4u(0u, 32u, 0u, 0u));
    write_matrix(row.parts[3], subgroup, place, at + vec4u(0u, 48u, 0u, 0u));
  }
}

fn write_matrix(sum: subgroup_matrix_result<f32, 16, 16>, subgroup: u32, place: u32, at: vec4u) {
  subgroupMatrixStore<row_major>(&stage[subgroup], 0u, sum, STAGE_STRIDE);
  workgroupBarrier();
  write(at, vec2u(place / 4u, place % 4u), stage[subgroup][place / 4u * STAGE_STRIDE + place % 4u]);
  write(at, vec2u(place / 4u + 8u, place % 4u), stage[subgroup][(place / 4u + 8u) * STAGE_STRIDE + place % 4u]);
  workgroupBarrier();
}

// spot: a row of the matrix and a quad of it
fn write(at: vec4u, spot: vec2u, sum: vec4f) {
  let m = at.x + spot.x;
  let n = at.y + spot.y * 4u;
  if (m >= at.z) { return; }
  if (ADDS == 1u) { result_add(m, n, sum); return; }
  result_put(at.w * M + m, n, sum + vec4f(bias_at(n), bias_at(n + 1u), bias_at(n + 2u), bias_at(n + 3u)));
}
