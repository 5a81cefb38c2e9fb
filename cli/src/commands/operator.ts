// `operator`: runs in a cluster beside a coordinator, and makes its TrainingJobs jobs of it.
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { openApi } from '@starling-grid/client/connection'
import { describeError, GridError, ROUTES, systemClock } from '@starling-grid/protocol'
import { Command, Option } from 'commander'
import { readPort, wholeNumber } from '../arguments.ts'
import { KubeApi, type KubeAddress, SERVICE_ACCOUNT } from '../operator/kube-api.ts'
import { Operator } from '../operator/operator.ts'
import { type LogFlags, logOptions, processLog } from '../process-log.ts'
import { completeSettings, withSettings } from '../settings.ts'

/** ms without a pass after which the process counts as hung */
const SILENT_MS = 120_000
const INTERRUPTED = 130

interface OperatorFlags extends LogFlags {
  readonly url?: string
  readonly tokenFile?: string
  readonly fingerprint?: string
  readonly deployment?: string
  readonly maxReplicas: number
  readonly namespace?: string
  readonly kubeUrl?: string
  readonly kubeTokenFile?: string
  readonly kubeCaFile?: string
  readonly probePort?: number
}

export function operatorCommand(): Command {
  const command = new Command('starling operator')
    .description(
      'Looks after the TrainingJobs of a Kubernetes namespace: submits them to a coordinator, writes their status, ' +
        'and scales a Deployment of volunteers to what jobs have work for. Runs in a pod, or anywhere with --kube-url.',
    )
    .option('--url <url>', 'address of the coordinator')
    .option('--token-file <file>', 'file of mode 600 with a token of scope jobs:write; STARLING_TOKEN otherwise')
    .option('--fingerprint <sha256>', 'of the certificate of a coordinator with --https, as it printed at its start')
    .option('--deployment <name>', 'of headless volunteers, which it scales; something else does so otherwise')
    .option('--max-replicas <n>', 'volunteers that it asks for at most', wholeNumber(0), 10)
    .option('--namespace <name>', "whose TrainingJobs it looks after (the pod's own)")
    .option('--kube-url <url>', "address of the API server, such as that of `kubectl proxy` (the pod's cluster)")
    .option('--kube-token-file <file>', 'file with a token for it')
    .option('--kube-ca-file <file>', 'PEM of the authority that signed its certificate')
    .addOption(new Option('--probe-port <port>', 'answers /healthz there').argParser(readPort))
    .exitOverride()
  for (const option of logOptions()) command.addOption(option)
  return withSettings(command)
}

export async function operator(argv: string[]): Promise<number> {
  const command = operatorCommand().parse(argv, { from: 'user' })
  const { printed, warnings } = await completeSettings(command, { secrets: ['url'] })
  if (printed !== undefined) {
    process.stdout.write(printed)
    return 0
  }
  const flags = command.opts<OperatorFlags>()
  const { url, tokenFile, fingerprint, deployment, maxReplicas: most } = flags
  const log = processLog({ ...flags, logLevel: flags.logLevel ?? 'info' })
  for (const message of warnings) log({ level: 'warn', message })
  const given = { ...(url && { url }), ...(tokenFile && { tokenFile }), ...(fingerprint && { fingerprint }) }
  const api = await openApi(given)
  const address = await kubeAddress(flags)
  const looking = new Operator({ cluster: new KubeApi(address), api, clock: systemClock, log, deployment, most })
  const probe = flags.probePort === undefined ? undefined : await answerProbes(flags.probePort, looking)
  const probePort = (probe?.address() as AddressInfo | undefined)?.port
  log({
    level: 'info',
    message: `looks after TrainingJobs in ${address.namespace}, for the coordinator at ${api.url}`,
    about: probePort === undefined ? {} : { probePort },
  })
  await looking.run(untilSignal())
  probe?.close()
  log({ level: 'info', message: 'ended' })
  return 0
}

/** @throws GridError 'usage' */
async function kubeAddress({ kubeUrl, kubeTokenFile, kubeCaFile, namespace }: OperatorFlags): Promise<KubeAddress> {
  const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port = '443' } = process.env
  if (kubeUrl !== undefined)
    return {
      url: kubeUrl.replace(/\/+$/, ''),
      namespace: namespace ?? 'default',
      tokenFile: kubeTokenFile,
      ca: kubeCaFile === undefined ? undefined : await read(kubeCaFile),
    }
  if (host === undefined)
    throw new GridError(
      'usage',
      'expected to run in a pod, or --kube-url, got neither; try `kubectl proxy` and --kube-url http://127.0.0.1:8001',
    )
  return {
    url: `https://${host.includes(':') ? `[${host}]` : host}:${port}`,
    namespace: namespace ?? (await read(`${SERVICE_ACCOUNT}/namespace`)).trim(),
    tokenFile: kubeTokenFile ?? `${SERVICE_ACCOUNT}/token`,
    ca: await read(kubeCaFile ?? `${SERVICE_ACCOUNT}/ca.crt`),
  }
}

async function read(file: string): Promise<string> {
  return readFile(file, 'utf8').catch((cause: unknown) => {
    throw new GridError('usage', `expected a readable ${file}, got ${describeError(cause)}; name another`, { cause })
  })
}

/** 503 for a process that hangs: its kubelet starts another. */
async function answerProbes(port: number, looking: Operator): Promise<Server> {
  const server = createServer(({ url }, response) => {
    const health = (looking.silentMs ?? 0) < SILENT_MS ? 200 : 503
    response.writeHead(url === ROUTES.healthz ? health : 404).end()
  }).listen(port)
  await once(server, 'listening')
  return server
}

/** Once: it ends with the pass that is under way. Twice: at once. */
function untilSignal(): AbortSignal {
  const ending = new AbortController()
  const onSignal = (): void => {
    if (ending.signal.aborted) process.exit(INTERRUPTED)
    ending.abort()
  }
  process.on('SIGINT', onSignal)
  process.on('SIGTERM', onSignal)
  return ending.signal
}
