// Sizes and times that bound what strangers can make us do, each with its unit and its reason.

/** Raised when an older client or coordinator could misread a newer one. */
export const PROTOCOL_VERSION = 4

/** Bytes of one control message (JSON over WebSocket): a START with W steps of 16 blocks is about 20 kB. */
export const MAX_MESSAGE_BYTES = 256 * 1024
/** Payload bytes of one peer frame; 64 KiB is what every WebRTC stack accepts when the SDP is silent. */
export const FRAME_PAYLOAD_BYTES = 60 * 1024
/**
 * Payload bytes that a receiver accepts in one peer frame: with its header what Chromium and libdatachannel take as one
 * message.
 */
export const MAX_FRAME_PAYLOAD_BYTES = 256 * 1024 - 36
/** Bytes queued on a data channel before `send` waits; a channel in Chromium closes at 16 MiB. */
export const HIGH_WATER_BYTES = 1024 * 1024
/** Bytes left in the queue when a waiting `send` goes on. */
export const LOW_WATER_BYTES = HIGH_WATER_BYTES / 4
/** Bytes of manifest JSON that a member may add to a reduce. */
export const MAX_MANIFEST_BYTES = 32 * 1024

/** Bytes of a state that are asked for, hashed and kept at a time: one round trip of 50 ms at 20 MB/s. */
export const FETCH_CHUNK_BYTES = 1024 * 1024
/** STUN and TURN servers that a volunteer is told: each costs every new link a question. */
export const MAX_ICE_SERVERS = 8

/** Characters of a volunteer's name. */
export const MAX_NAME_LENGTH = 40
/**
 * Kinds of refusals, by code and sender, in one heartbeat: the neighbours and those who fetch, with a few codes each.
 */
export const MAX_REFUSALS = 64
/** Members of one ring: a full round of 2(N−1) hops stays below a second at 10 ms a hop. */
export const MAX_RING_MEMBERS = 32
/**
 * Members that exchange with each of the others directly: 15 links of each are what a tab bears beside its work
 * (reliability.md §3).
 */
export const MAX_BUTTERFLY_MEMBERS = 16
/** Volunteers connected to one coordinator. */
export const MAX_VOLUNTEERS = 5000
/**
 * Blocks in one record: 256 of a global batch, or several batches of a local round. A manifest of them stays below
 * MAX_MANIFEST_BYTES.
 */
export const MAX_STEP_BLOCKS = 1024
/** W: steps a member may be ahead of the last acknowledged commit, and the longest plan (COMMIT.md). */
export const PLAN_WINDOW = 64
/** Matrices of which one push may carry only some rows: a model has one or two embedding tables. */
export const MAX_SPARSE_PARTS = 16
/** Parameters of a model: 256 MiB of f32. */
export const MAX_PARAMETERS = 64 * 1024 * 1024
/** Bytes of one shard. */
export const MAX_SHARD_BYTES = 8 * 1024 * 1024
/** UTF-16 units of a text's vocabulary: every script in use fits, and with it a START message. */
export const MAX_VOCABULARY_LENGTH = 16 * 1024
/** Blocks of one dataset split. */
export const MAX_BLOCKS = 1_000_000

/** Milliseconds between heartbeats, to the coordinator and to ring neighbours. */
export const HEARTBEAT_MS = 1000
/**
 * Heartbeats in a row that a live socket or link may miss: ICE itself needs 27.6 s to notice a dead peer
 * (reliability.md §2).
 */
export const MISSED_BEATS = 5
/** Milliseconds of silence after which a socket or a link counts as dead. */
export const SILENCE_MS = MISSED_BEATS * HEARTBEAT_MS
/**
 * Milliseconds to open a link to a neighbour, PeerJS retry included, unless the coordinator says otherwise: some
 * connects hang and need a second try.
 */
export const LINK_OPEN_MS = 12_000
/**
 * What a coordinator may say instead: less than a round trip around the world and its answer is no try, and nobody
 * waits for longer.
 */
export const MIN_LINK_OPEN_MS = 1000
export const MAX_LINK_OPEN_MS = 120_000
