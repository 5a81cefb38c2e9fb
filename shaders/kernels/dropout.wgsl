// Dropout, four elements of a sample per invocation. y = x · SCALE, or 0 where the hash of (key of the sample, NODE,
// element) is below THRESHOLD; a residual may be added. Nothing is stored: backward is the same kernel on dy.
// x, y, residual (B, SIZE), keys (B,)

@compute @workgroup_size(WORKGROUP)
fn forward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= run.samples * QUADS) { return; }
  let sample = i / QUADS;
  let c = i % QUADS * 4u;
  let key = bitcast<u32>(keys[sample]);
  let words = vec4u(hash(key, c), hash(key, c + 1u), hash(key, c + 2u), hash(key, c + 3u));
  y_put(sample, c, select(x_quad(sample * x_stride, c) * SCALE, vec4f(), words < vec4u(THRESHOLD)));
}

// Source: Jarzynski and Olano, Hash Functions for GPU Rendering, Journal of Computer Graphics Techniques 9(3), 2020,
// pcg3d.
fn hash(key: u32, element: u32) -> u32 {
  var v = vec3u(key, NODE, element) * 1664525u + 1013904223u;
  v.x += v.y * v.z; v.y += v.z * v.x; v.z += v.x * v.y;
  v ^= v >> vec3u(16u);
  v.x += v.y * v.z; v.y += v.z * v.x; v.z += v.x * v.y;
  return v.x;
}
