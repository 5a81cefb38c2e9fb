// Public face of the client-node package.
export * from './gpu.ts'
export * from './local-group.ts'
export * from './runtime/adapter-environment.ts'
export * from './runtime/browser.ts'
export * from './runtime/chromium.ts'
export * from './runtime/prepare-process.ts'
export { golden, type GoldenPlace, type GoldenPlaceOptions } from './commands/golden.ts'
export { runCommand } from './run-command.ts'
