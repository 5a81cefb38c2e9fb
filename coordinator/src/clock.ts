// Time for decisions: ms since the epoch, and yet never backwards while the process lives, whatever happens to the wall clock.
export const now = (): number => Math.round(performance.timeOrigin + performance.now())
