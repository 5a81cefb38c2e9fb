// The commands that users run: one per file, loaded when it is called.
import type { RunCommand } from './run-command.ts'

export const COMMANDS: Readonly<Record<string, () => Promise<RunCommand>>> = {
  start: async () => (await import('./commands/start.ts')).start,
  demo: async () => (await import('./commands/demo.ts')).demo,
  train: async () => (await import('./commands/train.ts')).train,
  plan: async () => (await import('./commands/plan.ts')).plan,
  job: async () => (await import('./commands/job.ts')).job,
  predict: async () => (await import('./commands/predict.ts')).predict,
  convert: async () => (await import('./commands/convert.ts')).convert,
  invite: async () => (await import('./commands/invite.ts')).invite,
  token: async () => (await import('./commands/token.ts')).token,
  model: async () => (await import('./commands/model.ts')).model,
  dataset: async () => (await import('./commands/dataset.ts')).dataset,
  volunteer: async () => (await import('./commands/volunteer.ts')).volunteer,
  lend: async () => (await import('./commands/lend.ts')).lend,
  launch: async () => (await import('./commands/launch.ts')).launch,
  operator: async () => (await import('./commands/operator.ts')).operator,
  ps: async () => (await import('./commands/ps.ts')).ps,
  backup: async () => (await import('./commands/storage.ts')).backup,
  restore: async () => (await import('./commands/storage.ts')).restore,
  migrate: async () => (await import('./commands/storage.ts')).migrate,
  doctor: async () => (await import('./commands/doctor.ts')).doctor,
  explain: async () => (await import('./commands/explain.ts')).explain,
  golden: async () => (await import('./commands/golden.ts')).golden,
  parity: async () => (await import('./commands/parity.ts')).parity,
}
