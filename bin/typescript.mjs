// Runs a TypeScript file of the repository as a process of its own: node bin/typescript.mjs FILE [arguments]
import { pathToFileURL } from 'node:url'
import { compiled } from './compile.mjs'

process.argv.splice(1, 1)
await import(await compiled(pathToFileURL(process.argv[1])))
