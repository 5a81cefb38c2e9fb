// The core of matrix products on GPUs: C (M, N) = Σ_k A(m, k) · B(k, n). A workgroup makes TILE_M × TILE_N results. For
// each slab of SLAB steps in k its invocations put A and B into workgroup memory, as rows over m and n. Then they add
// the products while they load the next slab: one pair of barriers per slab. On an H200 that is 1.2 to 1.4 times as
// fast as loading between the barriers, and 1.4 times again for large matrices if nothing looks at what was loaded
// before the products are added. Padding of one quad per row keeps rows apart in the memory's banks. An invocation
// keeps up to 8 × 8 results. Its first four rows start at quad `row`, the next four half a tile further down. Columns
// are placed alike. Which elements A and B are is up to the kernel that calls put_slab.

const QUADS_M = TILE_M / 4u;
const QUADS_N = TILE_N / 4u;
const STRIDE_M = QUADS_M + 1u;
const STRIDE_N = QUADS_N + 1u;
const TALL = THREAD_M == 8u;
const WIDE = THREAD_N == 8u;
const LANES_M = TILE_M / THREAD_M;
const LANES_N = TILE_N / THREAD_N;
// blocks of 4 × 4 elements in a slab
const BLOCKS_A = QUADS_M * SLAB / 4u;
const BLOCKS_B = QUADS_N * SLAB / 4u;
const BLOCKS = BLOCKS_A + BLOCKS_B;

// Nested, so that the step of k folds into the address: with flat arrays a clamp of the whole index stays in the inner
// loop (117 other instructions to 512 multiply-adds on RDNA 3, and 14 with nested ones).
var<workgroup> tile_a: array<array<vec4f, STRIDE_M>, SLAB>;
var<workgroup> tile_b: array<array<vec4f, STRIDE_N>, SLAB>;

// Results of one invocation; columns of a matrix are rows of C. a·, b·: upper and lower four rows; ·a, ·b: left and
// right.
struct Sums { aa: mat4x4f, ab: mat4x4f, ba: mat4x4f, bb: mat4x4f }

// Where in a slab a block of four rows of m or n (x) and four steps of k (y) lies: first those of A, then those of B.
// Neighbouring invocations go along k or along m, whichever is how the elements lie in memory.
fn block_at(i: u32) -> vec2u {
  if (i < BLOCKS_A) { return block_place(i, QUADS_M, A_ALONG_K == 1u); }
  return block_place(i - BLOCKS_A, QUADS_N, B_ALONG_K == 1u);
}

fn block_place(i: u32, quads: u32, along_k: bool) -> vec2u {
  if (along_k) { return vec2u(i / (SLAB / 4u), i % (SLAB / 4u)) * 4u; }
  return vec2u(i % quads, i / quads) * 4u;
}

// Columns of `block` are four elements over m (or n), one column per step of k.
fn put_a(place: vec2u, block: mat4x4f) {
  let at = place.x / 4u;
  tile_a[place.y][at] = block[0];
  tile_a[place.y + 1u][at] = block[1];
  tile_a[place.y + 2u][at] = block[2];
  tile_a[place.y + 3u][at] = block[3];
}

fn put_b(place: vec2u, block: mat4x4f) {
  let at = place.x / 4u;
  tile_b[place.y][at] = block[0];
  tile_b[place.y + 1u][at] = block[1];
  tile_b[place.y + 2u][at] = block[2];
  tile_b[place.y + 3u][at] = block[3];
}

// The blocks of a slab that one invocation brings: all invocations share those of A and B, and the widest of our tiles
// gives each three.
struct Brought { a: mat4x4f, b: mat4x4f, c: mat4x4f }

fn put_slab(lane: u32, brought: Brought) {
  put_block(lane, brought.a);
  if (BLOCKS > WORKGROUP) { put_block(lane + WORKGROUP, brought.b); }
  if (BLOCKS > 2u * WORKGROUP) { put_block(lane + 2u * WORKGROUP, brought.c); }
}

fn put_block(i: u32, block: mat4x4f) {
  if (i < BLOCKS_A) { put_a(block_at(i), block); return; }
  if (i < BLOCKS) { put_b(block_at(i), block); }
}

// An invocation's results are written block by block, 4 × 4 each, so that what writes them is compiled once.
const OWN_ACROSS = THREAD_N / 4u;
const OWN_BLOCKS = THREAD_M / 4u * OWN_ACROSS;

// Row and column of a block in its tile.
fn own_place(lane: u32, i: u32) -> vec2u {
  return thread_place(lane) + 4u * vec2u(i / OWN_ACROSS * LANES_M, i % OWN_ACROSS * LANES_N);
}

fn own_sums(sums: ptr<function, Sums>, i: u32) -> mat4x4f {
  switch (i / OWN_ACROSS * 2u + i % OWN_ACROSS) {
    case 0u: { return (*sums).aa; }
    case 1u: { return (*sums).ab; }
    case 2u: { return (*sums).ba; }
    default: { return (*sums).bb; }
  }
}

// Row and column of an invocation's first results in its tile.
fn thread_place(lane: u32) -> vec2u { return vec2u(lane / LANES_N, lane % LANES_N) * 4u; }

// Four steps at a time: a driver that does not unroll the loop itself loses a twentieth to counting.
fn add_slab(sums: ptr<function, Sums>, lane: u32) {
  let place = thread_place(lane) / 4u;
  for (var k = 0u; k < SLAB; k += 4u) {
    add_step(sums, place, k);
    add_step(sums, place, k + 1u);
    add_step(sums, place, k + 2u);
    add_step(sums, place, k + 3u);
  }
}

fn add_step(sums: ptr<function, Sums>, place: vec2u, k: u32) {
  let a0 = tile_a[k][place.x];
  let b0 = tile_b[k][place.y];
  var b1 = vec4f();
  (*sums).aa = add_outer((*sums).aa, a0, b0);
  if (WIDE) {
    b1 = tile_b[k][place.y + LANES_N];
    (*sums).ab = add_outer((*sums).ab, a0, b1);
  }
  if (TALL) {
    let a1 = tile_a[k][place.x + LANES_M];
    (*sums).ba = add_outer((*sums).ba, a1, b0);
    if (WIDE) { (*sums).bb = add_outer((*sums).bb, a1, b1); }
  }
}

fn add_outer(sum: mat4x4f, a: vec4f, b: vec4f) -> mat4x4f {
  return mat4x4f(
    fma(vec4f(a.x), b, sum[0]),
    fma(vec4f(a.y), b, sum[1]),
    fma(vec4f(a.z), b, sum[2]),
    fma(vec4f(a.w), b, sum[3]),
  );
}
