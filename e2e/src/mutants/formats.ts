// Mutants of what reads bytes and JSON from the network: frames, messages, the chain, safetensors.
import { type Mutant, mutantsOf } from './mutant.ts'

const FORMATS = 'formats'

export const FORMATS_IN: readonly Mutant[] = [
  ...mutantsOf(
    FORMATS,
    'protocol/src/frame.ts',
    ['protocol/test/frame', 'protocol/test/hostile-input'],
    [
      [
        'a frame above the limit is read',
        'if (bytes.byteLength > FRAME_HEADER_BYTES + MAX_FRAME_PAYLOAD_BYTES)',
        'if (bytes.byteLength > 2 ** 40)',
      ],
      ['the checksum of a frame is not looked at', 'if (field(8) !== checksum(payload)) throw', 'if (false) throw'],
      ['the checksum does not see swapped words', 'b = (((b + s) | 0) + ((t + u) | 0) + a) | 0', 'b = a'],
      [
        'a frame may promise more than follows',
        'if (field(7) !== payload.byteLength) throw',
        'if (field(7) < payload.byteLength) throw',
      ],
    ],
  ),
  ...mutantsOf(
    FORMATS,
    'protocol/src/safetensors.ts',
    ['protocol/test/safetensors', 'protocol/test/hostile-input'],
    [
      ['begin > end is taken', 'if (begin > end || end > dataBytes)', 'if (end > dataBytes)'],
      ['tensors may overlap', 'if (span.begin !== covered)', 'if (span.begin > covered)'],
      ['bytes may follow the last tensor', 'if (covered !== dataBytes) throw', 'if (covered > dataBytes) throw'],
      ['a header of any size is read', 'if (length > BigInt(MAX_SAFETENSORS_HEADER_BYTES))', 'if (length > 2n ** 62n)'],
      ['data lie on odd addresses', 'data.byteOffset % bytesPerElement === 0 ? data : new Uint8Array(data)', 'data'],
    ],
  ),
  ...mutantsOf(
    FORMATS,
    'protocol/src/schema.ts',
    ['protocol/test/hostile-input', 'coordinator/test/refuses-strangers'],
    [
      [
        'messages may hold what their schema does not name',
        'Type.Object(properties, { additionalProperties: false })',
        'Type.Object(properties)',
      ],
    ],
  ),
  ...mutantsOf(
    FORMATS,
    'protocol/src/codec.ts',
    ['protocol/test/chain'],
    [
      [
        'names of Object.prototype are types of messages',
        "typeof type === 'string' && Object.hasOwn(schemas, type) ? schemas[type]",
        "typeof type === 'string' ? schemas[type]",
      ],
    ],
  ),
  ...mutantsOf(
    FORMATS,
    'protocol/src/chain.ts',
    ['protocol/test/chain'],
    [
      ['records with a gap make a version', 'if (record.v !== version.v + 1) return undefined', ''],
      ['a version is its number', 'return a.v === b.v && a.id === b.id', 'return a.v === b.v'],
    ],
  ),
  ...mutantsOf(
    FORMATS,
    'protocol/src/windows.ts',
    ['protocol/test/windows'],
    [
      ['the last window has no last target', 'Math.max(0, tokens - context)', 'Math.max(0, tokens - context + 1)'],
      ['every epoch sees the same windows', 'Math.imul(epoch + 1, 0xc2b2ae35)', 'Math.imul(1, 0xc2b2ae35)'],
    ],
  ),
]
