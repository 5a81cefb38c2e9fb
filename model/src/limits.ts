// Bounds of a model from a stranger's job file: generous for what volunteers can train, far below what exhausts memory.
import { MAX_STATE_BYTES } from '@starling-grid/protocol'

/** The deepest networks in use have about a thousand layers; a spec with more is a mistake. */
export const MAX_LAYERS = 1024
/** Operators of a model with its blocks unfolded: a hundred blocks with adapters on all linear layers. */
export const MAX_OPERATORS = 8192
/** Trained parameters: as f32 they are a state by themselves. What a machine can hold is its own affair. */
export const MAX_TRAINED_PARAMETERS = Math.floor(MAX_STATE_BYTES / Float32Array.BYTES_PER_ELEMENT)
/** Parameters that stay as they are: 16 GiB of f32. What a machine can hold is its own affair. */
export const MAX_FROZEN_PARAMETERS = 2 ** 32
/** Elements of one sample at any layer: 256 MiB of f32. */
export const MAX_SAMPLE_ELEMENTS = 2 ** 26
/** Bytes of all values that forward makes for one sample: 1 GiB; backward needs them all, and a tab has little more. */
export const MAX_ACTIVATION_BYTES = 2 ** 30
/** Any single size: channels, features, height, width. */
export const MAX_SIZE = 2 ** 24
/** Window edge of a convolution or pool, in cells. */
export const MAX_KERNEL = 256
/** Dimensions of a sample. */
export const MAX_DIMENSIONS = 8
/** Characters of a layer's or model's name: nested blocks give long ones. */
export const MAX_LAYER_NAME_LENGTH = 100
