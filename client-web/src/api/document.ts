// The part of the OpenAPI document that the page shows, and the requests that follow from it.

export interface ApiParameter {
  readonly name: string
  readonly in: 'path' | 'query' | 'header'
  readonly required: boolean
}

export interface ApiOperation {
  readonly operationId: string
  readonly summary: string
  readonly description: string
  readonly parameters: readonly ApiParameter[]
  readonly requestBody?: unknown
  readonly responses: Readonly<Record<string, { readonly description?: string }>>
}

export interface ApiDocument {
  readonly info: { readonly title: string; readonly description: string }
  readonly paths: Readonly<Record<string, Readonly<Record<string, ApiOperation>>>>
  readonly components: {
    readonly schemas: {
      readonly Problem: { readonly properties: { readonly code: { readonly enum: readonly string[] } } }
    }
  }
}

export interface ListedOperation extends ApiOperation {
  readonly method: string
  readonly path: string
}

export function operationsOf({ paths }: ApiDocument): readonly ListedOperation[] {
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({
      ...operation,
      parameters: operation.parameters.filter(({ in: where }) => where !== 'header'), // the browser's own matter
      method: method.toUpperCase(),
      path,
    })),
  )
}

/** The address of a request: parts of the path in their places, the rest behind a question mark. */
export function addressOf({ path, parameters }: ListedOperation, values: Readonly<Record<string, string>>): string {
  const filled = path.replaceAll(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(values[name] ?? ''))
  const query = new URLSearchParams(
    parameters.flatMap(({ name, in: where }) => (where === 'query' && values[name] ? [[name, values[name]]] : [])),
  )
  return query.size === 0 ? filled : `${filled}?${query}`
}

/** Characters of an answer that are shown. */
const MAX_SHOWN = 20_000

/** Status and body of an answer, as text. Files are not read. */
export async function answerText(response: Response): Promise<string> {
  const type = response.headers.get('content-type') ?? ''
  const head = `HTTP ${response.status} ${type}`
  if (!type.includes('json')) {
    await response.body?.cancel()
    return `${head}\n${response.headers.get('content-length') ?? 'some'} bytes`
  }
  const text = JSON.stringify(JSON.parse(await response.text()), null, 2)
  return `${head}\n${text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}\n…` : text}`
}
