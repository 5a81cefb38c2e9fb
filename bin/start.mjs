// `start`: the coordinator, with the pages that it serves built first when they are missing or stale.
import { compiled } from './compile.mjs'

const load = async (file) => import(await compiled(new URL(file, import.meta.url)))
const argv = process.argv
if (!argv.includes('--web-root') && !argv.includes('--help') && !argv.includes('-h')) {
  const { ensureWebPage } = await load('../client-web/build.ts')
  argv.push('--web-root', await ensureWebPage((line) => console.error(line)))
}
await load('../coordinator/src/main.ts')
