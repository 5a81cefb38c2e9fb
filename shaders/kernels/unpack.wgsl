// Matrices that lie packed (packed.ts), as f32: packed (ROWS, STRIDE) words, of which the first VALUES of a row hold
// numbers of BITS bits, and the rest their scales, one for each GROUP of neighbours. QUADS groups of four columns: one
// for each invocation.

@compute @workgroup_size(WORKGROUP)
fn forward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  let row = i / QUADS;
  let column = i % QUADS * 4u;
  if (row >= ROWS) { return; }
  y_put(row, column, packed_quad(row, column));
}

// y = the rows of ids from FIRST on; ids outside belong to another piece of the table
@compute @workgroup_size(WORKGROUP)
fn of_tokens(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  let row = i / QUADS;
  let column = i % QUADS * 4u;
  if (row >= run.samples * TOKENS) { return; }
  let id = u32(ids[row]) - FIRST;
  if (id >= ROWS) { return; }
  y_put(row, column, packed_quad(id, column));
}

// Columns c … c + 3 of a row; c is a multiple of four.
fn packed_quad(row: u32, c: u32) -> vec4f {
  let start = row * STRIDE;
  if (BITS == 16u) {
    let first = bitcast<u32>(packed[start + c / 2u]);
    let second = bitcast<u32>(packed[start + min(c / 2u + 1u, VALUES - 1u)]);
    return float_of(vec4u(first & 0xffffu, first >> 16u, second & 0xffffu, second >> 16u));
  }
  let scale = bitcast<f32>(packed[start + VALUES + c / GROUP]);
  let word = vec4i(packed[start + c * BITS / 32u]);
  if (BITS == 8u) { return scale * vec4f((word << vec4u(24u, 16u, 8u, 0u)) >> vec4u(24u)); }
  return scale * vec4f(((word >> (vec4u(0u, 4u, 8u, 12u) + 4u * (c & 4u))) & vec4i(15)) - vec4i(8));
}

// Four halves. By whole numbers where they are tiny: unpack2x16float may take those for zero.
fn float_of(half: vec4u) -> vec4f {
  let size = half & vec4u(0x7fffu);
  let exponent = select(vec4u(112u << 23u), vec4u(224u << 23u), size >= vec4u(0x7c00u));
  let tiny = bitcast<vec4u>(0x1p-24f * vec4f(size));
  let magnitude = select((size << vec4u(13u)) + exponent, tiny, size < vec4u(0x400u));
  return bitcast<vec4f>(magnitude | ((half & vec4u(0x8000u)) << vec4u(16u)));
}
