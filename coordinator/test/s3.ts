// An S3 server of a test's own, in a process of its own. It reads signatures of version 4 without checking them, so a
// door before it does, with another library than the one that signs.
import { spawn } from 'node:child_process'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer, type IncomingMessage, request, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import aws4 from 'aws4'

/** Not among the project's packages: it brings a hundred others. */
const SERVER = 's3rver@3.7.1'
const BUCKET = 'starlings'
/** of the server, which has one user */
const KEY = 'S3RVER'

export interface TestS3 {
  readonly environment: Readonly<Record<string, string>>
  readonly url: string
  /** Changes a byte of an object behind the store's back. */
  damage(name: string): Promise<void>
  stop(): Promise<void>
}

/** Undefined, with a line that says so, where the server cannot be fetched. */
export async function startS3(): Promise<TestS3 | undefined> {
  const root = await mkdtemp(join(tmpdir(), 'starling-s3-'))
  const options = ['-d', root, '-a', '127.0.0.1', '-p', '0', '--no-vhost-buckets', '--configure-bucket', BUCKET]
  const server = spawn('npx', ['--yes', '-p', SERVER, 's3rver', ...options], {
    stdio: ['ignore', 'pipe', 'ignore'],
    detached: true,
    // it lists pages by a cipher of old
    env: { ...process.env, NODE_OPTIONS: '--openssl-legacy-provider' },
  })
  const ended = new Promise<void>((resolve) => server.once('exit', () => resolve()))
  const stop = async (): Promise<void> => {
    // npx and the server that it started
    if (server.exitCode === null && server.pid !== undefined) process.kill(-server.pid, 'SIGKILL')
    await ended
    await rm(root, { recursive: true, force: true })
  }
  const port = await portOf(createInterface({ input: server.stdout }))
  if (port === undefined) {
    console.log(`not tested: ${SERVER} cannot be fetched from the npm registry`)
    await stop()
    return undefined
  }
  const door = await openDoor(port)
  return {
    environment: {
      AWS_ACCESS_KEY_ID: KEY,
      AWS_SECRET_ACCESS_KEY: KEY,
      AWS_ENDPOINT_URL_S3: `http://127.0.0.1:${(door.address() as AddressInfo).port}`,
    },
    url: `s3://${BUCKET}/blobs`,
    async damage(name) {
      const files = await readdir(root, { recursive: true })
      const object = files.find((file) => file.includes(name) && file.endsWith('_object'))
      if (object === undefined) throw new Error(`expected a file of ${name}, got none among ${files.join(' ')}`)
      const bytes = await readFile(join(root, object))
      bytes[0] = (bytes[0] ?? 0) ^ 1
      await writeFile(join(root, object), bytes)
    },
    async stop() {
      door.close()
      door.closeAllConnections()
      await stop()
    },
  }
}

async function openDoor(port: number): Promise<Server> {
  const door = createServer((incoming, answer) => {
    if (!isSigned(incoming)) {
      answer.writeHead(403).end('<Error><Code>SignatureDoesNotMatch</Code></Error>')
      return
    }
    const { method, url, headers } = incoming
    const onward = request({ host: '127.0.0.1', port, method, path: url, headers }, (reply) => {
      answer.writeHead(reply.statusCode ?? 502, reply.headers)
      reply.pipe(answer)
    })
    onward.on('error', () => answer.destroy())
    incoming.pipe(onward)
  })
  await new Promise<void>((resolve) => door.listen(0, '127.0.0.1', resolve))
  return door
}

/** Signs the request once more, and compares. */
function isSigned({ method = 'GET', url = '/', headers }: IncomingMessage): boolean {
  const [, names = ''] = /SignedHeaders=([^,]+)/.exec(headers.authorization ?? '') ?? []
  const signed = Object.fromEntries(names.split(';').map((name) => [name, String(headers[name] ?? '')]))
  const again = aws4.sign(
    { service: 's3', region: 'us-east-1', method, path: url, headers: signed },
    { accessKeyId: KEY, secretAccessKey: KEY },
  )
  return again.headers?.['Authorization'] === headers.authorization
}

async function portOf(lines: AsyncIterable<string>): Promise<number | undefined> {
  for await (const line of lines) {
    const port = /:(\d+)\s*$/.exec(line)?.[1]
    if (port !== undefined) return Number(port)
  }
  return undefined
}
