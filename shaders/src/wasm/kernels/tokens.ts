// Images as sequences of tokens with a learned one before them, and nearest upsampling.
import type { UpsampleDims } from '../../kernels.ts'
import { matrix } from '../../recipe.ts'
import { fillRow, forRow, partOf, piecesOf } from '../loops.ts'
import { FLOAT_BYTES, onePass, type PieceWriter, type WasmKernel } from '../pass.ts'
import { storeFirst } from '../products.ts'
import { f32, float, i32, type I32, v128 } from '../values.ts'

/** Elements of a piece of a parameter's gradient. */
const BLOCK = 256

// x (B, rows, columns) → y (B, columns, rows)
export const transposeForward: WasmKernel<'transpose.forward'> = ({ rows, columns }, capacity) =>
  onePass('transpose.forward', {
    constants: { rows, columns },
    bindings: [matrix('x', 'read', capacity * rows, columns), matrix('y', 'write', capacity * columns, rows)],
    pieces: (samples) => samples * columns,
    write(w) {
      const line = w.piece
      const sample = w.int(i32.divUnsigned(line, columns))
      const from = w.int(i32.add(i32.mul(sample, rows * columns), i32.remUnsigned(line, columns)))
      const to = w.int(i32.mul(line, rows))
      w.for(0, rows, 1, (row) =>
        w.store(w.at('y', i32.add(to, row)), f32.load(w.at('x', i32.add(from, i32.mul(row, columns))))),
      )
    },
  })

// x (B, size), weight (token,) → y (B, token + size)
export const classTokenForward: WasmKernel<'class_token.forward'> = ({ size, token }, capacity) =>
  onePass('class_token.forward', {
    constants: { size, token },
    bindings: [
      matrix('x', 'read', capacity, size),
      matrix('weight', 'read', 1, token),
      matrix('y', 'write', capacity, token + size),
    ],
    pieces: (samples) => samples,
    write(w) {
      const to = w.int(i32.mul(w.piece, token + size))
      w.copy(w.at('y', to), w.at('weight'), token * FLOAT_BYTES)
      w.copy(w.at('y', i32.add(to, token)), w.at('x', i32.mul(w.piece, size)), size * FLOAT_BYTES)
    },
  })

// dweight (token,) += Σ_samples of the first vectors of dy (B, token + size)
export const classTokenParameterGradient: WasmKernel<'class_token.parameterGradient'> = ({ size, token }, capacity) =>
  onePass('class_token.parameterGradient', {
    constants: { size, token },
    bindings: [matrix('dy', 'read', capacity, token + size), matrix('dweight', 'update', 1, token)],
    pieces: () => piecesOf(token, BLOCK),
    write(w) {
      const { start, end } = partOf(w, w.piece, token, BLOCK)
      const count = token % BLOCK === 0 ? BLOCK : w.int(i32.sub(end, start))
      forRow(w, count, (element, left) => {
        const sum = w.variable(v128.constant(0))
        const place = w.int(i32.add(start, element))
        w.for(0, w.samples, 1, (sample) => {
          w.set(sum, v128.add(sum, v128.load(w.at('dy', i32.add(i32.mul(sample, token + size), place)))))
        })
        const to = w.int(w.at('dweight', place))
        storeFirst(w, to, v128.add(v128.load(to), sum), left)
      })
    },
  })

// dy (B, token) → dx (B, size)
export const firstTokenBackward: WasmKernel<'first_token.backward'> = ({ size, token }, capacity) =>
  onePass('first_token.backward', {
    constants: { size, token },
    bindings: [matrix('dy', 'read', capacity, token), matrix('dx', 'write', capacity, size)],
    pieces: (samples) => samples,
    write(w) {
      const to = w.int(i32.mul(w.piece, size))
      w.copy(w.at('dx', to), w.at('dy', i32.mul(w.piece, token)), token * FLOAT_BYTES)
      fillRow(w, size - token, w.int(w.at('dx', i32.add(to, token))), () => v128.constant(0))
    },
  })

// x (B, C, H, W) → y (B, C, scale · H, scale · W)
export const upsampleForward: WasmKernel<'upsample.forward'> = (dims, capacity) =>
  onePass('upsample.forward', {
    constants: { ...dims },
    bindings: images(dims, capacity, { small: ['x', 'read'], large: ['y', 'write'] }),
    pieces: (samples) => samples * dims.channels,
    write: (w) =>
      forSquares(w, dims, (small, cells) => {
        const value = w.variable(f32.load(w.at('x', small)))
        cells((large) => w.store(w.at('y', large), value))
      }),
  })

// dy (B, C, scale · H, scale · W) → dx (B, C, H, W)
export const upsampleBackward: WasmKernel<'upsample.backward'> = (dims, capacity) =>
  onePass('upsample.backward', {
    constants: { ...dims },
    bindings: images(dims, capacity, { small: ['dx', 'write'], large: ['dy', 'read'] }),
    pieces: (samples) => samples * dims.channels,
    write: (w) =>
      forSquares(w, dims, (small, cells) => {
        const sum = w.variable(float(0))
        cells((large) => w.set(sum, f32.add(sum, f32.load(w.at('dy', large)))))
        w.store(w.at('dx', small), sum)
      }),
  })

type Image = readonly [name: string, access: 'read' | 'write']

function images(
  { channels, height, width, scale }: UpsampleDims,
  capacity: number,
  { small, large }: { readonly small: Image; readonly large: Image },
) {
  const [planes, cells] = [capacity * channels, height * width]
  return [matrix(...small, planes, cells), matrix(...large, planes, cells * scale * scale)]
}

/** body(cell of the smaller image, walk over its square in the larger one), over the plane of the piece */
function forSquares(
  w: PieceWriter,
  { height, width, scale }: UpsampleDims,
  body: (small: I32, cells: (visit: (large: I32) => void) => void) => void,
): void {
  const wide = width * scale
  w.for(0, height, 1, (row) =>
    w.for(0, width, 1, (column) => {
      const line = w.int(i32.add(i32.mul(w.piece, height), row))
      const corner = w.int(i32.add(i32.mul(line, scale * wide), i32.mul(column, scale)))
      body(w.int(i32.add(i32.mul(line, width), column)), (visit) =>
        w.for(0, scale, 1, (r) =>
          w.for(0, scale, 1, (c) => visit(w.int(i32.add(corner, i32.add(i32.mul(r, wide), c))))),
        ),
      )
    }),
  )
}
