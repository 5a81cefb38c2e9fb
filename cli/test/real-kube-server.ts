// A kube-apiserver with its etcd, where this machine has both: as programs of PATH, or in the folder that
// STARLING_KUBE_BIN names. No controllers run: what they would do, the tests do.
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { createWriteStream, existsSync } from 'node:fs'
import { readFile, writeFile } from 'node:fs/promises'
import { createServer, type AddressInfo } from 'node:net'
import { delimiter, join } from 'node:path'
import { KubeClient } from './kube-client.ts'

export interface RealKube {
  readonly url: string
  /** PEM of its own certificate */
  readonly caFile: string
  /** of an administrator */
  readonly tokenFile: string
  stop(): Promise<void>
}

const ADMIN = 'the-administrator-of-tests'
const START_MS = 120_000

function programAt(name: string): string | undefined {
  const folders = [process.env['STARLING_KUBE_BIN'] ?? '', ...(process.env['PATH'] ?? '').split(delimiter)]
  return folders
    .filter((folder) => folder !== '')
    .map((folder) => join(folder, name))
    .find((file) => existsSync(file))
}

/** Why it cannot run here; undefined: it can. */
export function noRealKube(): string | undefined {
  const missing = ['etcd', 'kube-apiserver'].filter((name) => programAt(name) === undefined)
  return missing.length === 0 ? undefined : `${missing.join(' and ')} are not installed: no real API server is asked`
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  const { port } = server.address() as AddressInfo
  await new Promise((resolve) => server.close(resolve))
  return port
}

export async function startRealKube(folder: string): Promise<RealKube> {
  const [etcdPort, peerPort, port] = [await freePort(), await freePort(), await freePort()]
  const [keyFile, tokens, tokenFile] = ['sa.key', 'tokens.csv', 'token'].map((name) => join(folder, name)) as [
    string,
    string,
    string,
  ]
  execFileSync('openssl', ['genrsa', '-out', keyFile, '2048'], { stdio: 'ignore' })
  await writeFile(tokens, `${ADMIN},admin,admin,system:masters\n`)
  await writeFile(tokenFile, ADMIN, { mode: 0o600 })
  const etcdUrl = `http://127.0.0.1:${etcdPort}`
  const peerUrl = `http://127.0.0.1:${peerPort}`
  const log = createWriteStream(join(folder, 'kube.log'))
  const run = (name: string, args: readonly string[]): ChildProcess => {
    const child = spawn(programAt(name) ?? name, [...args], { stdio: ['ignore', 'pipe', 'pipe'], cwd: folder })
    child.stdout?.pipe(log, { end: false })
    child.stderr?.pipe(log, { end: false })
    return child
  }
  const etcd = run('etcd', [
    ...['--data-dir', join(folder, 'etcd'), '--listen-client-urls', etcdUrl, '--advertise-client-urls', etcdUrl],
    ...['--listen-peer-urls', peerUrl, '--initial-advertise-peer-urls', peerUrl],
    ...['--initial-cluster', `default=${peerUrl}`],
  ])
  const server = run('kube-apiserver', [
    ...['--etcd-servers', etcdUrl, '--secure-port', String(port), '--bind-address', '127.0.0.1'],
    ...['--cert-dir', join(folder, 'certs'), '--service-account-issuer', 'https://kubernetes.default.svc'],
    ...['--service-account-key-file', keyFile, '--service-account-signing-key-file', keyFile],
    ...['--token-auth-file', tokens, '--authorization-mode', 'RBAC', '--service-cluster-ip-range', '10.0.0.0/24'],
  ])
  const url = `https://127.0.0.1:${port}`
  const caFile = join(folder, 'certs', 'apiserver.crt')
  const stop = async (): Promise<void> => {
    for (const child of [server, etcd]) {
      child.kill('SIGKILL')
      if (child.exitCode === null && child.signalCode === null)
        await new Promise((resolve) => child.once('exit', resolve))
    }
    log.end()
  }
  try {
    await waitUntilReady(url, caFile, server)
  } catch (error) {
    await stop()
    throw error
  }
  return { url, caFile, tokenFile, stop }
}

async function waitUntilReady(url: string, caFile: string, server: ChildProcess): Promise<void> {
  const until = Date.now() + START_MS
  while (Date.now() < until && server.exitCode === null) {
    if (await isReady(url, caFile)) return
    await new Promise((resolve) => setTimeout(resolve, 200))
  }
  throw new Error('expected the API server to become ready, got none that does; see kube.log')
}

async function isReady(url: string, caFile: string): Promise<boolean> {
  try {
    const client = new KubeClient({ url, token: ADMIN, ca: await readFile(caFile, 'utf8') })
    return (await client.ask('GET', '/readyz')).status === 200
  } catch {
    return false // it starts
  }
}
