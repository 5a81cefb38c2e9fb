// Matrix products of the linear layer on GPUs (see tile-product.wgsl), all three directions by one entry point:
//   forward          left = x (R, IN), right = weight (OUT, IN), result = y
//   input gradient   left = dy (R, OUT), right = weight (OUT, IN) with k along its rows, result = dx
//   weight gradient  left = dy (R, OUT), right = x (R, IN), both with k along their rows, result = dweight,
//                    or one part of it per split
// A_ALONG_K, B_ALONG_K: elements of a row of left, right follow each other along k, not along m or n. Sizes that follow
// the number of samples are given as ROWS > 0 per sample.

@compute @workgroup_size(WORKGROUP)
fn product(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
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
  let corner = vec4u(m, n, count_m - 1u, last_k);
  var next = bring(lane, corner, first_k);
  for (var k = first_k; k < last_k; k += SLAB) {
    put_slab(lane, settled(lane, next, k, last_k));
    workgroupBarrier();
    if (k + SLAB < last_k) { next = bring(lane, corner, k + SLAB); }
    add_slab(&sums, lane);
    workgroupBarrier();
  }
  for (var i = 0u; i < OWN_BLOCKS; i++) {
    let at = own_place(lane, i);
    write(split, m + at.x, count_m, n + at.y, own_sums(&sums, i));
  }
}

fn bring(lane: u32, tile: vec4u, k: u32) -> Brought {
  var brought = Brought();
  brought.a = bring_block(lane, tile, k);
  if (BLOCKS > WORKGROUP) { brought.b = bring_block(lane + WORKGROUP, tile, k); }
  if (BLOCKS > 2u * WORKGROUP) { brought.c = bring_block(lane + 2u * WORKGROUP, tile, k); }
  return brought;
}

// tile: its first row and column, the last row, the end of k. What is loaded is used in the next turn of the loop
// alone: an invocation that looked at it here would wait for memory before it adds the present slab.
fn bring_block(i: u32, tile: vec4u, k: u32) -> mat4x4f {
  let place = block_at(i);
  let at = k + place.y;
  if (i < BLOCKS_A) {
    if (A_ALONG_K == 1u) { return left_block(left_rows(tile.x + place.x, tile.z), min(at, tile.w - 1u)); }
    return left_block(left_rows(at, tile.w - 1u), min(tile.x + place.x, LAST_QUAD_M));
  }
  if (i >= BLOCKS) { return mat4x4f(); }
  if (B_ALONG_K == 1u) { return right_block(right_rows(tile.y + place.x, N - 1u), min(at, tile.w - 1u)); }
  return right_block(right_rows(at, tile.w - 1u), min(tile.y + place.x, LAST_QUAD_N));
}

// What was brought for the slab at k, one column per step, and zeros past the end.
fn settled(lane: u32, brought: Brought, k: u32, end: u32) -> Brought {
  var result = Brought();
  result.a = settled_block(lane, brought.a, k, end);
  if (BLOCKS > WORKGROUP) { result.b = settled_block(lane + WORKGROUP, brought.b, k, end); }
  if (BLOCKS > 2u * WORKGROUP) { result.c = settled_block(lane + 2u * WORKGROUP, brought.c, k, end); }
  return result;
}

fn settled_block(i: u32, block: mat4x4f, k: u32, end: u32) -> mat4x4f {
  let at = k + block_at(i).y;
  let along_k = select(B_ALONG_K, A_ALONG_K, i < BLOCKS_A) == 1u;
  if (at >= end) { return mat4x4f(); }
  if (along_k) { return transpose(block); }
  return rows_below(block, at, end);
}

// Rows past the end are copies of the last, which must not count again.
fn rows_below(block: mat4x4f, k: u32, end: u32) -> mat4x4f {
  return mat4x4f(
    block[0],
    select(vec4f(), block[1], k + 1u < end),
    select(vec4f(), block[2], k + 2u < end),
    select(vec4f(), block[3], k + 3u < end),
  );
}

fn write(split: u32, m: u32, end: u32, n: u32, block: mat4x4f) {
  if (ADDS == 1u) { result_add_block(m, end, n, block); return; }
  let bias = vec4f(bias_at(n), bias_at(n + 1u), bias_at(n + 2u), bias_at(n + 3u));
  result_put_block(split * M + m, split * M + end, n, block + mat4x4f(bias, bias, bias, bias));
}
