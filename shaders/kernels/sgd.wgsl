// Stochastic gradient descent in place, four parameters per invocation; settings as in reference/optimizer-kernels.ts.
// Not bit-exact across adapters: members of a ring update on the CPU instead.

@compute @workgroup_size(WORKGROUP)
fn update(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i * 4u >= LENGTH) { return; }
  let lr = settings[0];
  let momentum = settings[1];
  let g = gradient[i] + settings[2] * parameters[i];
  let v = momentum * velocity[i] + g;
  velocity[i] = v;
  parameters[i] -= lr * select(v, g + momentum * v, settings[3] == 1.0);
}
