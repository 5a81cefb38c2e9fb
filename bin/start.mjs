// `start`: the coordinator, with the pages that it serves built first when they are missing or stale.
const argv = process.argv
if (!argv.includes('--web-root') && !argv.includes('--help') && !argv.includes('-h')) {
  const { ensureWebPage } = await import('../client-web/build.ts')
  argv.push('--web-root', await ensureWebPage((line) => console.error(line)))
}
await import('../coordinator/src/main.ts')
