// Time for decisions: ms since the epoch, and yet never backwards while the process lives, whatever happens to the wall
// clock. While this process stands still (a long computation, a frozen machine) its clock stands still, too: time in
// which it could hear no member does not count as silence of a member, nor towards the deadline of a lease, an answer
// or a link.

/** ms between two turns of the event loop that count at most; far below SILENCE_MS, far above an ordinary turn */
const LONGEST_TURN_MS = 1000
const BEAT_MS = 100

let awake = performance.timeOrigin + performance.now()
let turnedAt = performance.now()
let beat: ReturnType<typeof setInterval> | undefined

export function now(): number {
  return Math.round(passed())
}

function passed(): number {
  // From the first question on; a process that asks for no time is not kept awake for it.
  if (beat === undefined) begin()
  return awake + Math.min(performance.now() - turnedAt, LONGEST_TURN_MS)
}

function begin(): void {
  turnedAt = performance.now()
  awake = performance.timeOrigin + turnedAt
  beat = setInterval(turn, BEAT_MS)
  beat.unref()
}

function turn(): void {
  awake = passed()
  turnedAt = performance.now()
}
