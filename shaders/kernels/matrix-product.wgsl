// The core of matrix products on a GPU's matrix units: C (M, N) = Σ_k A(m, k) · B(k, n), factors in f16, sums in f32.
// A workgroup makes TILE_M × TILE_N results, each of its subgroups OWN_M × OWN_N matrices of 16 × 16. Slabs of SLAB
// steps in k lie in workgroup memory as they lie in storage, in lines along k or along m (n): the units read either.
// Lines are padded by two quads: 16 bytes keep their alignment, and eight lines then lie in different banks. Sixteen
// lines are a band, an array of its own: a band's number is bounds-checked by one clamp, and what is left is constant.
// As in tile-product.wgsl, the next slab is brought while the present one is added. All is written out, because
// compilers keep matrices in registers only where each index is constant.

const A_LINES = select(SLAB, TILE_M, A_ALONG_K == 1u);
const B_LINES = select(SLAB, TILE_N, B_ALONG_K == 1u);
const A_QUADS = select(TILE_M, SLAB, A_ALONG_K == 1u) / 4u;
const B_QUADS = select(TILE_N, SLAB, B_ALONG_K == 1u) / 4u;
const A_STRIDE = A_QUADS + 2u;
const B_STRIDE = B_QUADS + 2u;
// quads that one invocation brings: 2, 4 or 8
const A_EACH = A_LINES * A_QUADS / WORKGROUP;
const B_EACH = B_LINES * B_QUADS / WORKGROUP;
const SUBGROUPS_N = TILE_N / 16u / OWN_N;
const STAGE_STRIDE = 5u;

var<workgroup> tile_a: array<array<vec4h, 16u * A_STRIDE>, A_LINES / 16u>;
var<workgroup> tile_b: array<array<vec4h, 16u * B_STRIDE>, B_LINES / 16u>;
// 16 × 16 results of each subgroup on their way to storage
var<workgroup> stage: array<array<vec4f, 16u * STAGE_STRIDE>, WORKGROUP / 32u>;

struct Brought { a: array<vec4h, 8>, b: array<vec4h, 8> }
struct Row { parts: array<subgroup_matrix_result<f32, 16, 16>, 4> }
struct Sums { a: Row, b: Row, c: Row, d: Row }
struct Rights { parts: array<subgroup_matrix_right<f16, 16, 16>, 4> }

fn put_a(i: u32, quad: vec4h) {
  let line = i / A_QUADS;
  tile_a[line / 16u][line % 16u * A_STRIDE + i % A_QUADS] = quad;
}

fn put_b(i: u32, quad: vec4h) {
  let line = i / B_QUADS;
  tile_b[line / 16u][line % 16u * B_STRIDE + i % B_QUADS] = quad;
}

fn put_slab(lane: u32, brought: Brought) {
  put_a(lane, brought.a[0]);
  put_a(lane + WORKGROUP, brought.a[1]);
  if (A_EACH > 2u) {
    put_a(lane + 2u * WORKGROUP, brought.a[2]);
    put_a(lane + 3u * WORKGROUP, brought.a[3]);
  }
  if (A_EACH > 4u) {
    put_a(lane + 4u * WORKGROUP, brought.a[4]);
    put_a(lane + 5u * WORKGROUP, brought.a[5]);
    put_a(lane + 6u * WORKGROUP, brought.a[6]);
    put_a(lane + 7u * WORKGROUP, brought.a[7]);
  }
  put_b(lane, brought.b[0]);
  put_b(lane + WORKGROUP, brought.b[1]);
  if (B_EACH > 2u) {
    put_b(lane + 2u * WORKGROUP, brought.b[2]);
    put_b(lane + 3u * WORKGROUP, brought.b[3]);
  }
  if (B_EACH > 4u) {
    put_b(lane + 4u * WORKGROUP, brought.b[4]);
    put_b(lane + 5u * WORKGROUP, brought.b[5]);
    put_b(lane + 6u * WORKGROUP, brought.b[6]);
    put_b(lane + 7u * WORKGROUP, brought.b[7]);
  }
}

// Row and column of a subgroup's first matrix in its tile, in matrices.
fn own_place(subgroup: u32) -> vec2u { return vec2u(subgroup / SUBGROUPS_N * OWN_M, subgroup % SUBGROUPS_N * OWN_N); }

// m, n, k in matrices.
fn left_of(m: u32, k: u32) -> subgroup_matrix_left<f16, 16, 16> {
  if (A_ALONG_K == 1u) {
    return subgroupMatrixLoad<subgroup_matrix_left<f16, 16, 16>, row_major>(&tile_a[m], 4u * k, A_STRIDE);
  }
  return subgroupMatrixLoad<subgroup_matrix_left<f16, 16, 16>, col_major>(&tile_a[k], 4u * m, A_STRIDE);
}

fn right_of(n: u32, k: u32) -> subgroup_matrix_right<f16, 16, 16> {
  if (B_ALONG_K == 1u) {
    return subgroupMatrixLoad<subgroup_matrix_right<f16, 16, 16>, col_major>(&tile_b[n], 4u * k, B_STRIDE);
  }
  return subgroupMatrixLoad<subgroup_matrix_right<f16, 16, 16>, row_major>(&tile_b[k], 4u * n, B_STRIDE);
}

fn add_slab(sums: ptr<function, Sums>, own: vec2u) {
  add_steps(sums, own, 0u);
  add_steps(sums, own, 1u);
}

fn add_steps(sums: ptr<function, Sums>, own: vec2u, k: u32) {
  var rights = Rights();
  rights.parts[0] = right_of(own.y, k);
  if (OWN_N > 1u) { rights.parts[1] = right_of(own.y + 1u, k); }
  if (OWN_N > 2u) {
    rights.parts[2] = right_of(own.y + 2u, k);
    rights.parts[3] = right_of(own.y + 3u, k);
  }
  (*sums).a = add_row((*sums).a, left_of(own.x, k), rights);
  if (OWN_M > 1u) { (*sums).b = add_row((*sums).b, left_of(own.x + 1u, k), rights); }
  if (OWN_M > 2u) {
    (*sums).c = add_row((*sums).c, left_of(own.x + 2u, k), rights);
    (*sums).d = add_row((*sums).d, left_of(own.x + 3u, k), rights);
  }
}

fn add_row(row: Row, left: subgroup_matrix_left<f16, 16, 16>, rights: Rights) -> Row {
  var sum = row;
  sum.parts[0] = subgroupMatrixMultiplyAccumulate(left, rights.parts[0], row.parts[0]);
  if (OWN_N > 1u) { sum.parts[1] = subgroupMatrixMultiplyAccumulate(left, rights.parts[1], row.parts[1]); }
  if (OWN_N > 2u) {
    sum.parts[2] = subgroupMatrixMultiplyAccumulate(left, rights.parts[2], row.parts[2]);
    sum.parts[3] = subgroupMatrixMultiplyAccumulate(left, rights.parts[3], row.parts[3]);
  }
  return sum;
}
