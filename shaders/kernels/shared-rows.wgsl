// Sums over a row by a workgroup, for GPUs: each invocation takes every SHARERS-th step of the row. Halves are added to
// halves, always in the same order. The functions are those of own-rows.wgsl.

const SHARERS = WORKGROUP;

// what each invocation knows of the row
var<workgroup> known: array<vec4f, WORKGROUP>;

fn row_of(group: vec3u, lane: u32) -> u32 { return group_of(group); }
fn sharer(lane: u32) -> u32 { return lane; }

fn sum_of_row(lane: u32, own: vec4f) -> vec4f {
  known[lane] = own;
  for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (lane < half) { known[lane] += known[lane + half]; }
  }
  return first_known();
}

fn max_of_row(lane: u32, own: vec4f) -> vec4f {
  known[lane] = own;
  for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (lane < half) { known[lane] = max(known[lane], known[lane + half]); }
  }
  return first_known();
}

// Read by all before any of them writes again.
fn first_known() -> vec4f {
  workgroupBarrier();
  let whole = known[0];
  workgroupBarrier();
  return whole;
}
