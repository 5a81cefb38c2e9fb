// Public face of the cli package: grids of processes, the jobs that they train, and how a command prints and ends.
export { wholeNumber } from './arguments.ts'
export { demoJob } from './demo-job.ts'
export { Grid, type VolunteerProcessOptions } from './grid/grid.ts'
export { type Child, startChild, stopChild } from './grid/processes.ts'
export { Watch } from './grid/watch.ts'
export { runCommand, type RunCommand } from './run-command.ts'
export { duration, ProgressLine } from './terminal/progress-line.ts'
export { ensureText, textJob } from './text-job.ts'
