// Bounds of sizes and times, each with its unit and its reason. `npm run docs` writes them into docs/PROTOCOL.md.

/** Raised when an older program could misread a newer one. */
export const PROTOCOL_VERSION = 12

/** Bytes of one control message (JSON over WebSocket): a START with W steps of 16 blocks is about 20 kB. */
export const MAX_MESSAGE_BYTES = 256 * 1024
/** Bytes of any other message to the coordinator than a claim: `held` of a local round names 1024 blocks. */
export const MAX_PLAIN_MESSAGE_BYTES = 64 * 1024
/** JSON values of any other message to the coordinator than a claim. */
export const MAX_PLAIN_MESSAGE_VALUES = 4096
/** Payload bytes of a sent peer frame. Every WebRTC stack accepts 64 KiB without negotiation. */
export const FRAME_PAYLOAD_BYTES = 60 * 1024
/** Payload bytes of an accepted peer frame. WebRTC takes 256 KiB, a number included. */
export const MAX_FRAME_PAYLOAD_BYTES = 256 * 1024 - 4 - 36
/** Bytes queued on a data channel before `send` waits. Chromium closes a channel at 16 MiB. */
export const HIGH_WATER_BYTES = 1024 * 1024
/** Bytes left in the queue when a waiting `send` continues. */
export const LOW_WATER_BYTES = HIGH_WATER_BYTES / 4
/** Bytes of manifest JSON that a member may add to a reduce. */
export const MAX_MANIFEST_BYTES = 32 * 1024

/** Bytes of one chunk of a fetched state: one round trip of 50 ms at 20 MB/s. */
export const FETCH_CHUNK_BYTES = 1024 * 1024
/** STUN and TURN servers in one message. Each new link queries all of them. */
export const MAX_ICE_SERVERS = 8

/** Characters of a volunteer's name. */
export const MAX_NAME_LENGTH = 40
/** Refusals in one heartbeat, counted by code and sender. */
export const MAX_REFUSALS = 64
/** Members of one ring: a full round of 2(N−1) hops stays below a second at 10 ms a hop. */
export const MAX_RING_MEMBERS = 32
/** Members of a direct exchange: each has 15 links, the number that a tab sustains beside its work. */
export const MAX_DIRECT_MEMBERS = 16
/** Volunteers connected to one coordinator. */
export const MAX_VOLUNTEERS = 5000
/** Blocks in one record: a global batch of 256, or several batches of a local round, within MAX_MANIFEST_BYTES. */
export const MAX_STEP_BLOCKS = 1024
/** Blocks in a record of the parameter server: a thousand rounds. */
export const MAX_VERSION_BLOCKS = 256 * 1024
/** Steps W that a member may be ahead of the last acknowledged commit; also the longest plan (R14). */
export const PLAN_WINDOW = 64
/** Sums that a member keeps. */
export const SUMS_KEPT = 256
/** Sparse matrices in one push: a model has one or two embedding tables. */
export const MAX_SPARSE_PARTS = 16
/** Bytes of a state: what a frame's u32 counts. */
export const MAX_STATE_BYTES = 2 ** 32 - 1
/** Bytes of one shard. */
export const MAX_SHARD_BYTES = 8 * 1024 * 1024
/** UTF-16 units of a text's vocabulary: every script in use fits. */
export const MAX_VOCABULARY_LENGTH = 16 * 1024
/** Blocks of one dataset split. */
export const MAX_BLOCKS = 1_000_000

/** Milliseconds between heartbeats, to the coordinator and to ring neighbours. */
export const HEARTBEAT_MS = 1000
/** Consecutive heartbeats that a live socket or link may miss. ICE alone needs 27.6 s to detect a dead peer. */
export const MISSED_BEATS = 5
/** Milliseconds of silence after which a socket or a link is dead. */
export const SILENCE_MS = MISSED_BEATS * HEARTBEAT_MS
/** Milliseconds to open a link, with one retry because some attempts hang; `welcome` may name another value. */
export const LINK_OPEN_MS = 12_000
/** Least LINK_OPEN_MS that `welcome` may name: a few round trips around the world. */
export const MIN_LINK_OPEN_MS = 1000
/** Greatest LINK_OPEN_MS that `welcome` may name: longer waits would stop a run. */
export const MAX_LINK_OPEN_MS = 120_000
