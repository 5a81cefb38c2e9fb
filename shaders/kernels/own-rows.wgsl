// Sums over a row by one invocation. Kernels that walk rows call these functions. shared-rows.wgsl has the same ones
// for a workgroup that walks a row together; a pass uses one of the two files.

// invocations of a row
const SHARERS = 1u;

fn row_of(group: vec3u, lane: u32) -> u32 { return thread_of(group, lane); }
// Its place among those of its row.
fn sharer(lane: u32) -> u32 { return 0u; }
fn sum_of_row(lane: u32, own: vec4f) -> vec4f { return own; }
fn max_of_row(lane: u32, own: vec4f) -> vec4f { return own; }
