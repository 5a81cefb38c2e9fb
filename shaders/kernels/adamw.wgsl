// Adam and AdamW in place, four parameters per invocation; settings as in reference/optimizer-kernels.ts.
// Not bit-exact across adapters: members of a ring update on the CPU instead.

@compute @workgroup_size(WORKGROUP)
fn update(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i * 4u >= LENGTH) { return; }
  let lr = settings[0];
  let beta1 = settings[1];
  let beta2 = settings[2];
  let decay = settings[4];
  let decoupled = settings[5] == 1.0;
  let p = parameters[i];
  let g = gradient[i] + select(decay, 0.0, decoupled) * p;
  let m = beta1 * mean[i] + (1.0 - beta1) * g;
  let v = beta2 * square[i] + (1.0 - beta2) * g * g;
  mean[i] = m;
  square[i] = v;
  let denominator = sqrt(v) / sqrt(1.0 - settings[7]) + settings[3];
  parameters[i] = p * select(1.0, 1.0 - lr * decay, decoupled) - lr / (1.0 - settings[6]) * m / denominator;
}
