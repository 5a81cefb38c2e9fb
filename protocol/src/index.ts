// Public face of the protocol package.
export type { AdapterDescription, ExecutorKind } from './adapter.ts'
export { BASE_FORMAT, type BaseManifest, type BaseShard, MAX_BASE_SOURCES, readBaseManifest } from './base-manifest.ts'
export {
  digest,
  extend,
  fold,
  genesis,
  recordId,
  sameVersion,
  sha256Of,
  type StepRecord,
  type StepScaling,
  ChainRecordSchema,
  type VersionRef,
  VersionRefSchema,
} from './chain.ts'
export { type CancelTimer, type Clock, sleepOn, systemClock } from './clock.ts'
export { decodeToCoordinator, decodeToVolunteer, encode } from './codec.ts'
export {
  type Augment,
  type BlockRange,
  BlockRanges,
  blockRanges,
  type DatasetManifest,
  DatasetManifestSchema,
  elementsOf,
  isText,
  type JobDataset,
  MAX_CLASS_NAMES,
  MAX_NORMALIZED,
  rangeOf,
  requirePossible,
  samplesIn,
  type ShardRef,
  ShardRefSchema,
  storedElementsOf,
  requirePossibleImages,
} from './dataset.ts'
export { type MemberDoor, DoorSchema, isDoor, LOWEST_DOOR_PORT, MAX_DOOR_ADDRESSES } from './door.ts'
export { describeError, ERROR_CODES, type ErrorCode, GridError, isErrorCode, isGridError } from './errors.ts'
export {
  checksum,
  type Frame,
  FRAME_HEADER_BYTES,
  FRAME_TYPES,
  frameBytes,
  FramePacker,
  type FrameType,
  packFrame,
  unpackFrame,
} from './frame.ts'
export {
  helloText,
  type Incarnation,
  incarnationOf,
  newIncarnation,
  NONCE_BYTES,
  type Signer,
  volunteerIdOf,
} from './identity.ts'
export {
  type BlockId,
  blockIndex,
  epochOf,
  hex,
  type JobId,
  jobId,
  type MemberId,
  memberId,
  newMemberId,
  type Sha256,
  sha256Name,
  trainingBlock,
  validationBlock,
  type VersionId,
  versionId,
  type VolunteerId,
} from './ids.ts'
export {
  type ChatForm,
  ChatFormSchema,
  type ColumnNames,
  type ModelSignature,
  ModelSignatureSchema,
  signatureOf,
} from './model-signature.ts'
export { type Exchange, EXCHANGES, exchangesWith } from './exchange.ts'
export {
  asJobSpec,
  type AsyncSettings,
  type GroupSettings,
  type EvaluateRule,
  jobMistakes,
  type JobSpec,
  type KeepRule,
  LAST_CHECKPOINTS,
  MOST_BATCH_BLOCKS,
  MOST_BEST_CHECKPOINTS,
  MOST_LAST_CHECKPOINTS,
  type StartRule,
  type StopRule,
} from './job.ts'
export {
  type GradientEncoding,
  type JobTerms,
  JobTermsSchema,
  type LocalSettings,
  type Mode,
  MOST_EPOCHS,
  OptimizerSchema,
  type Precision,
  type Requirements,
  requirementsOf,
  requiresText,
} from './job-terms.ts'
export { fittingEvents } from './kept-events.ts'
export {
  FETCH_CHUNK_BYTES,
  FRAME_PAYLOAD_BYTES,
  HEARTBEAT_MS,
  HIGH_WATER_BYTES,
  LINK_OPEN_MS,
  LOW_WATER_BYTES,
  MAX_BLOCKS,
  MAX_DIRECT_MEMBERS,
  MAX_FRAME_PAYLOAD_BYTES,
  MAX_ICE_SERVERS,
  MAX_LINK_OPEN_MS,
  MAX_MANIFEST_BYTES,
  MAX_MESSAGE_BYTES,
  MAX_NAME_LENGTH,
  MAX_PARAMETERS,
  MAX_REFUSALS,
  MAX_RING_MEMBERS,
  MAX_SHARD_BYTES,
  MAX_STEP_BLOCKS,
  MAX_VERSION_BLOCKS,
  MAX_VOCABULARY_LENGTH,
  MAX_VOLUNTEERS,
  MIN_LINK_OPEN_MS,
  PLAN_WINDOW,
  PROTOCOL_VERSION,
  SILENCE_MS,
  SUMS_KEPT,
} from './limits.ts'
export {
  findHint,
  type HintFinder,
  type Mistake,
  MistakesError,
  mistakeText,
  nearest,
  type Path,
  shown,
} from './mistakes.ts'
export { refusedJob } from './refused-job.ts'
export { type LinkEnd, type LinkIdentity, linkProof, requireLinkProof } from './link-proof.ts'
export { isLocalV4, isLoopbackUrl } from './local-address.ts'
export { isSameAuthority, MAX_COORDINATORS } from './same-authority.ts'
export {
  type AssignmentMove,
  type BlameReason,
  type Claim,
  ClaimSchema,
  type Consumed,
  FetchRefusalSchema,
  type FetchRequest,
  FetchSchema,
  isLinkTrouble,
  type LeaseToken,
  type LinkTrouble,
  type Manifest,
  ManifestSchema,
  type MessageFrom,
  type MessageTo,
  named,
  type OnWire,
  type PlanStep,
  type Push,
  type PushHeader,
  PushSchema,
  type SparsePart,
  SparsePartsSchema,
  type ToCoordinator,
  type ToVolunteer,
} from './messages.ts'
export { assignmentsAfter, assignmentsOfStep, epochOrder, isPartition, random32, splitBlocks } from './order.ts'
export {
  type CheckpointList,
  type CoordinatorList,
  GroupRanksSchema,
  type GroupSeats,
  GroupSizeSchema,
  InviteAskedSchema,
  type InviteView,
  type JobList,
  type TokenScope,
  SCOPES,
  TokenAskedSchema,
  type TokenView,
} from './owner-api.ts'
export { allPages, JOBS_PAGE, MAX_PAGE } from './pages.ts'
export { plainText } from './plain-text.ts'
export { type Problem, PROBLEM_TYPE, problemOf, refusalIn, statusOf } from './problem.ts'
export { allRecords, MAX_RECORDS, type RecordsPage } from './records.ts'
export { MAX_RELAY_MESSAGE_BYTES, MIN_RELAY_MESSAGE_BYTES, relayPath } from './relay.ts'
export {
  CLOSE_AWAY,
  CLOSE_BROKEN,
  CLOSE_DROPPED,
  CLOSE_FULL,
  CLOSE_INTERNAL,
  CLOSE_POLICY,
  CLOSE_REPLACED,
  DEFAULT_PORT,
  pathTo,
  PUSH_HEADER,
  ROUTES,
  ROWS_HEADER,
} from './routes.ts'
export {
  type AuditView,
  type DepartureView,
  epochText,
  linksInWords,
  type MemberView,
  membersText,
  type Phase,
  type RunEvent,
  RunEventSchema,
  type RunView,
  scalingText,
  type StepPoint,
  StepPointSchema,
  type ValidationPoint,
  ValidationPointSchema,
  type WaitView,
  waitText,
} from './run-view.ts'
export {
  isImpossible,
  MAX_TALLY_COLUMNS,
  type Measurements,
  measuredValue,
  type Metric,
  METRICS,
  METRICS_OF_TARGETS,
  metricsOf,
  metricText,
  metricValueText,
  type NamedMetric,
  NamedMetricSchema,
  numbersOf,
  pooled,
  type Tally,
  TallySchema,
  TOP,
} from './tally.ts'
export {
  float32Values,
  floatTensor,
  int32Values,
  MAX_SAFETENSORS_HEADER_BYTES,
  readSafetensors,
  type Safetensors,
  safetensorsBytes,
  type SafetensorsForm,
  safetensorsForms,
  safetensorsParts,
  safetensorsStart,
  type StoredTensor,
  type TensorForm,
  writeSafetensors,
} from './safetensors.ts'
export { chunksOfState, saltedDigest } from './salted-digest.ts'
export {
  BlockIdSchema,
  Count,
  FiniteNumber,
  MAX_JSON_DEPTH,
  MAX_JSON_VALUES,
  MemberIdSchema,
  parse,
  parseJson,
  Sha256Schema,
  strict,
  VersionIdSchema,
  type ReadonlyOf,
} from './schema.ts'
export { SerialQueue } from './serial-queue.ts'
export { SESSION_PROTOCOL, sessionProtocols, tokenIn, withoutToken } from './session-socket.ts'
export { type WatchMessage, WatchTokenSchema } from './watch.ts'
export { trainingWindows, validationWindows, windowPlaces } from './windows.ts'
