// Matrix products whose joint operand travels between the invocations of a subgroup, for software adapters. A load
// costs them one memory access per invocation, a broadcast one instruction for all. A workgroup is one subgroup of
// LANES invocations, 4 or 8. Each has OWN_COLUMNS columns of results to itself; JOINT_ROWS rows of results are joint to
// all. For four steps of k the invocations load the quads of the joint rows together, JOINT_QUADS each. Sums: a0 holds
// joint rows 0 … 3 at the first four own columns, one matrix column for each row. a1 holds the next four rows, and so
// on. b0 … b3 hold the same at the next four own columns.

const WIDE_OWN = OWN_COLUMNS == 8u;
const BLOCKS = JOINT_ROWS / 4u;
const JOINT_QUADS = JOINT_ROWS / LANES;

struct Sums {
  a0: mat4x4f, a1: mat4x4f, a2: mat4x4f, a3: mat4x4f,
  b0: mat4x4f, b1: mat4x4f, b2: mat4x4f, b3: mat4x4f,
}
struct Quads { q0: vec4f, q1: vec4f, q2: vec4f, q3: vec4f }

// own0, own1: four steps of k at the columns of this lane, one matrix column for each step
fn add_products(s: ptr<function, Sums>, q: Quads, own0: mat4x4f, own1: mat4x4f) {
  let r0 = low(q.q0);
  (*s).a0 += own0 * r0;
  if (WIDE_OWN) { (*s).b0 += own1 * r0; }
  if (BLOCKS > 1u) {
    let r1 = next(q.q0, q.q1);
    (*s).a1 += own0 * r1;
    if (WIDE_OWN) { (*s).b1 += own1 * r1; }
  }
  if (BLOCKS > 2u) {
    let r2 = first(q.q1, q.q2);
    let r3 = next(q.q1, q.q3);
    (*s).a2 += own0 * r2;
    (*s).a3 += own0 * r3;
    if (WIDE_OWN) { (*s).b2 += own1 * r2; (*s).b3 += own1 * r3; }
  }
}

// Four joint rows, from the quads that subgroups of eight or of four have them in.
fn first(of_eight: vec4f, of_four: vec4f) -> mat4x4f {
  if (LANES == 8u) { return low(of_eight); }
  return low(of_four);
}

fn next(of_eight: vec4f, of_four: vec4f) -> mat4x4f {
  if (LANES == 8u) { return high(of_eight); }
  return low(of_four);
}

// Where the rows of the joint matrix run along k, four invocations hold four steps of k, each for four joint rows.
fn low(q: vec4f) -> mat4x4f {
  let rows = mat4x4f(
    subgroupBroadcast(q, 0u),
    subgroupBroadcast(q, 1u),
    subgroupBroadcast(q, 2u),
    subgroupBroadcast(q, 3u),
  );
  if (JOINT_ROWS_K == 1u) { return transpose(rows); }
  return rows;
}

fn high(q: vec4f) -> mat4x4f {
  let rows = mat4x4f(
    subgroupBroadcast(q, 4u),
    subgroupBroadcast(q, 5u),
    subgroupBroadcast(q, 6u),
    subgroupBroadcast(q, 7u),
  );
  if (JOINT_ROWS_K == 1u) { return transpose(rows); }
  return rows;
}
