// Public face of the client-node package.
export * from './gpu.ts'
export * from './local-group.ts'
export * from './rtc-link.ts'
export * from './runtime/adapter-environment.ts'
export * from './runtime/browser.ts'
export { exists } from './runtime/cache-folder.ts'
export * from './runtime/chromium.ts'
export * from './runtime/prepare-process.ts'
