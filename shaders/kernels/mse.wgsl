// Squared error, one sample of SIZE values per invocation. x, wanted (B, SIZE) → loss (B,) = Σ (x − wanted)², dx = 2 (x
// − wanted).

@compute @workgroup_size(WORKGROUP)
fn loss_and_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let sample = thread_of(group, lane);
  if (sample >= run.samples) { return; }
  var sum = 0.0;
  for (var i = sample * SIZE; i < (sample + 1u) * SIZE; i++) {
    let error = x[i] - wanted[i];
    sum += error * error;
    dx[i] = 2.0 * error;
  }
  loss[sample] = sum;
}
