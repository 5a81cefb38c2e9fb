// Images as sequences of tokens, with a learned one before them, and nearest upsampling.

import { elementCount, imageSizes, lastSize } from '@starling-grid/shaders'
import { invalid } from '../fields.ts'
import type { ClassTokenLayer, FirstTokenLayer, TransposeLayer, UpsampleLayer } from '../spec.ts'
import { KERNEL, type LayerRule, NO_PARAMETERS, requireImage } from './rule.ts'
import { requireSequence } from './sequence.ts'

/** Standard deviation of initial class tokens in published vision transformers. */
const TOKEN_DEVIATION = 0.02

// (C, H, W) → (H · W, C); (T, C) → (C, T)
export const transpose: LayerRule<TransposeLayer> = {
  read: () => ({ type: 'transpose' }),
  shape(_, [x], place) {
    const [first] = x
    if (first === undefined || x.length < 2 || x.length > 3)
      throw invalid(place, 'an image (C, H, W) or a sequence (T, C)', `the shape [${x.join(', ')}]`)
    return [elementCount(x) / first, first]
  },
  parameters: NO_PARAMETERS,
  multiplyAdds: () => 0,
}

// (T, C) → (T + 1, C)
export const classToken: LayerRule<ClassTokenLayer> = {
  read: (fields) => ({ type: 'class_token', name: fields.name('name') }),
  shape(_, [x], place) {
    const { length, channels } = requireSequence(place, x)
    return [length + 1, channels]
  },
  parameters: ({ name, parameter, leading }, x) => [
    {
      role: 'weight',
      name: parameter ?? `${name}.weight`,
      shape: [...(leading ? [1, 1] : []), lastSize(x)],
      kind: 'trained',
      initial: { type: 'normal', deviation: TOKEN_DEVIATION },
    },
  ],
  multiplyAdds: () => 0,
}

// (T, C) → (C,)
export const firstToken: LayerRule<FirstTokenLayer> = {
  read: () => ({ type: 'first_token' }),
  shape: (_, [x], place) => [requireSequence(place, x).channels],
  parameters: NO_PARAMETERS,
  multiplyAdds: () => 0,
}

// (C, H, W) → (C, scale · H, scale · W)
export const upsample: LayerRule<UpsampleLayer> = {
  read: (fields) => ({ type: 'upsample', scale: fields.integer('scale', { ...KERNEL, otherwise: 2 }) }),
  shape({ scale }, [x], place) {
    requireImage(place, x)
    const { channels, height, width } = imageSizes(x)
    return [channels, scale * height, scale * width]
  },
  parameters: NO_PARAMETERS,
  multiplyAdds: (_, __, y) => elementCount(y),
}
