// A PostgreSQL server of a test's own: Debian's, in a temporary folder, on a port of its own, without root's rights.
import { execFileSync, spawn } from 'node:child_process'
import { chownSync, existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

export interface TestPostgres {
  readonly url: string
  /** A database of its own. */
  database(name: string): string
  /** As when its machine loses power. */
  kill(): Promise<void>
  /** Without effect while it runs. */
  start(): Promise<void>
  stop(): Promise<void>
}

const FOLDERS = '/usr/lib/postgresql'
const USER = 'starling'

/** The folder of its programs; undefined where it is not installed. */
function programs(): string | undefined {
  const versions = existsSync(FOLDERS) ? readdirSync(FOLDERS) : []
  return versions.map((version) => join(FOLDERS, version, 'bin')).findLast((bin) => existsSync(join(bin, 'initdb')))
}

/** PostgreSQL refuses to run as root; its package made a user for it. */
function owner(): { readonly uid?: number; readonly gid?: number } {
  if (process.getuid?.() !== 0) return {}
  const idOf = (flag: string): number => Number(execFileSync('id', [flag, 'postgres'], { encoding: 'utf8' }))
  return { uid: idOf('-u'), gid: idOf('-g') }
}

/** Undefined, with a line that says so, where PostgreSQL is not installed. */
export async function startPostgres(): Promise<TestPostgres | undefined> {
  const bin = programs()
  if (bin === undefined) {
    console.log(`not tested: no PostgreSQL in ${FOLDERS}; install the package postgresql`)
    return undefined
  }
  const ids = owner()
  const root = mkdtempSync(join(tmpdir(), 'starling-postgres-'))
  if (ids.uid !== undefined && ids.gid !== undefined) chownSync(root, ids.uid, ids.gid)
  const data = join(root, 'data')
  execFileSync(join(bin, 'initdb'), ['-D', data, '-U', USER, '-A', 'trust', '--no-sync'], { ...ids, stdio: 'ignore' })
  const port = await freePort()
  let server = spawnServer()

  function spawnServer(): ReturnType<typeof spawn> {
    const settings = [`port=${port}`, 'listen_addresses=127.0.0.1', `unix_socket_directories=${root}`]
    return spawn(join(bin ?? '', 'postgres'), ['-D', data, ...settings.flatMap((setting) => ['-c', setting])], {
      ...ids,
      stdio: 'ignore',
    })
  }
  const isRunning = (): boolean => server.exitCode === null && server.signalCode === null
  const end = async (signal: NodeJS.Signals): Promise<void> => {
    const ended = new Promise((resolve) => server.once('exit', resolve))
    if (isRunning() && server.kill(signal)) await ended
  }
  const url = `postgres://${USER}@127.0.0.1:${port}/postgres`
  const sql = (text: string): void => void execFileSync(join(bin, 'psql'), [url, '-qc', text], { stdio: 'pipe' })
  const ready = async (): Promise<void> => {
    for (;;) {
      try {
        execFileSync(join(bin, 'pg_isready'), ['-q', '-d', url])
        return
      } catch {
        await new Promise((resolve) => setTimeout(resolve, 50))
      }
    }
  }
  await ready()
  return {
    url,
    database(name) {
      sql(`CREATE DATABASE ${name}`)
      return url.replace(/postgres$/, name)
    },
    kill: () => end('SIGKILL'),
    async start() {
      if (!isRunning()) server = spawnServer()
      await ready()
    },
    async stop() {
      await end('SIGINT')
      rmSync(root, { recursive: true, force: true })
    },
  }
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const probe = createServer().once('error', reject)
    probe.listen(0, '127.0.0.1', () => {
      const address = probe.address()
      probe.close(() => resolve(typeof address === 'object' && address !== null ? address.port : 0))
    })
  })
}
