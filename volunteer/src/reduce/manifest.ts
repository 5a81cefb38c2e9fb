// A manifest as the payload of a frame. What a manifest says is protocol's; here it only becomes bytes and back.
import { GridError, MAX_MANIFEST_BYTES, ManifestSchema, parse, parseJson, type Manifest } from '@starling-grid/protocol'

/** @throws GridError 'message-malformed' or 'message-too-large': what peers would refuse does not leave */
export function encodeManifest(manifest: Manifest): Uint8Array {
  const bytes = new TextEncoder().encode(JSON.stringify(parse(ManifestSchema, manifest, 'own manifest')))
  requireSmall(bytes)
  return bytes
}

/** @throws GridError 'message-malformed' or 'message-too-large' */
export function decodeManifest(bytes: Uint8Array): Manifest {
  requireSmall(bytes)
  return parse(ManifestSchema, parseJson(new TextDecoder().decode(bytes), MAX_MANIFEST_BYTES, 'a manifest'), 'manifest')
}

function requireSmall(bytes: Uint8Array): void {
  if (bytes.byteLength > MAX_MANIFEST_BYTES)
    throw new GridError(
      'message-too-large',
      `expected a manifest of at most ${MAX_MANIFEST_BYTES} bytes, got ${bytes.byteLength}`,
    )
}
