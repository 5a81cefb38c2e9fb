// Where the coordinator listens, with which headers, and with which codes its WebSockets close: each once, for the
// server, its clients and the tests.

/** Of a coordinator, unless others are named. */
export const DEFAULT_HOST = '127.0.0.1'
export const DEFAULT_PORT = 8790

/** Paths of the coordinator. `:name` stands for a part that `pathTo` fills. */
export const ROUTES = {
  healthz: '/healthz',
  readyz: '/readyz',
  metrics: '/metrics',
  dashboard: '/dashboard',
  // the page of this interface, and its description
  api: '/api',
  openapi: '/api/v1/openapi.json',
  // WebSockets
  volunteer: '/api/volunteer',
  watch: '/api/watch',
  relay: '/relay',
  signalling: '/signalling',
  groupSignalling: '/group-signalling',
  parameterServer: '/api/parameter-server',
  // the owner's and readers', of the first version of this interface
  coordinators: '/api/v1/coordinators',
  jobs: '/api/v1/jobs',
  job: '/api/v1/jobs/:id',
  spec: '/api/v1/jobs/:id/spec',
  stop: '/api/v1/jobs/:id/stop',
  pause: '/api/v1/jobs/:id/pause',
  resume: '/api/v1/jobs/:id/resume',
  events: '/api/v1/jobs/:id/events',
  records: '/api/v1/jobs/:id/records',
  export: '/api/v1/jobs/:id/export',
  checkpoints: '/api/v1/jobs/:id/checkpoints',
  checkpoint: '/api/v1/jobs/:id/checkpoints/:v',
  tokens: '/api/v1/tokens',
  token: '/api/v1/tokens/:id',
  invites: '/api/v1/invites',
  invite: '/api/v1/invites/:id',
  groups: '/api/v1/groups',
  groupRanks: '/api/v1/groups/:id/ranks',
  // members'
  leave: '/api/session/leave',
  variants: '/api/variants/:adapterClass',
  shard: '/api/shards/:sha256',
  version: '/api/jobs/:id/versions/:versionId',
  upload: '/api/jobs/:id/versions/:v/:versionId',
  rows: '/api/jobs/:id/versions/:versionId/rows',
  sums: '/api/jobs/:id/sums/:versionId',
  pushes: '/api/jobs/:id/pushes',
  givenSum: '/api/jobs/:id/given-sums/:sum',
} as const

type PartOf<Route extends string> = Route extends `${infer Head}/${infer Rest}`
  ? PartOf<Head> | PartOf<Rest>
  : Route extends `:${infer Part}`
    ? Part
    : never

/** @example pathTo(ROUTES.job, { id: 'digits-1' }) // '/api/jobs/digits-1' */
export function pathTo<Route extends string>(
  route: Route,
  parts: Readonly<Record<PartOf<Route>, string | number>>,
): string {
  const values: Readonly<Record<string, string | number | undefined>> = parts
  return route.replaceAll(/:(\w+)/g, (_, name: string) => encodeURIComponent(values[name] ?? ''))
}

/** Header that carries what a push says about its body. */
export const PUSH_HEADER = 'x-starling-push'
/** Header that says of which matrices how many rows are requested. */
export const ROWS_HEADER = 'x-starling-rows'

/** Codes of RFC 6455: the peer leaves, or its page does */
export const CLOSE_AWAY = 1001
/** No close frame came, so that the process died or the network failed. No peer sends it. */
export const CLOSE_BROKEN = 1006
export const CLOSE_POLICY = 1008
export const CLOSE_INTERNAL = 1011
/** No place for one more, for now. */
export const CLOSE_FULL = 1013
/** Codes of our own range: the same client has connected anew */
export const CLOSE_REPLACED = 4001
/** The coordinator ended the session of this client. */
export const CLOSE_DROPPED = 4002
