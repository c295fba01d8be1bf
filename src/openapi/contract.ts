import type { z } from 'zod'
import type { Scope } from '../identity/management-keys.ts'
import type { Role } from '../identity/roles.ts'

/**
 * What a route takes and gives, and who may call it, defined once. It validates requests, types handlers and generates
 * `openapi.json`.
 */
export type Contract = Form & Admission

type Form = {
  /** Unique; it names the client function. */
  readonly operation: string
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  /** Parameters in braces: `/api/keys/{id}`. */
  readonly path: string
  readonly summary: string
  readonly parameters?: z.ZodObject
  readonly query?: z.ZodObject
  readonly headers?: z.ZodObject
  readonly body?: z.ZodType
  /** The body is a chat request: described here, and parsed by `inference/chat-request.ts`, whose messages are the product. */
  readonly isChat?: true
  /** Status 204 has no body, and so no `answer`. */
  readonly status?: 200 | 201 | 202 | 204
  readonly answer?: z.ZodType
  /** Called by programs that have no key yet, so not only by our own pages. Pages of other sites are refused all the same. */
  readonly isForPrograms?: true
  /** Concerns the person, in whichever account the session is. */
  readonly isForPerson?: true
  /** Reads many rows: rates are lower, per API key and per account, and long answers count as several. */
  readonly isHeavy?: true
  /** The answer is a file of such lines, each as `answer` describes, in place of one JSON object. */
  readonly linesAs?: 'application/x-ndjson'
  /** Other forms in which the same can be had: by `Accept`, or by `?format=`. */
  readonly alsoAs?: readonly ('text/csv' | 'application/x-ndjson' | 'text/event-stream')[]
}

/**
 * Who may call the route. API keys cannot call `session` routes, and sessions cannot call `key` routes. `sandbox` needs a
 * session, and is 404 where money is real. `operator` needs the session of an operator, and is 404 for everyone else. `wallet`
 * needs a payment or a sign-in over x402.
 */
type Admission =
  | { readonly access: 'public' | 'key' | 'operator' | 'wallet'; readonly role?: never; readonly scope?: never }
  | {
      readonly access: 'session' | 'key or session' | 'sandbox'
      /** The lowest role that may call it with a session. The gate enforces it; handlers do not look at roles. */
      readonly role: Role
      /** What a management key needs to call it. Without one, the route is for people only. */
      readonly scope?: Scope
    }

/** Keeps the exact types of a contract's schemas. */
export function contract<const Exact extends Contract>(exact: Exact): Exact {
  return exact
}

export type QueryOf<Exact extends Contract> = Exact['query'] extends z.ZodType ? z.output<Exact['query']> : undefined
export type BodyOf<Exact extends Contract> = Exact['body'] extends z.ZodType ? z.output<Exact['body']> : undefined
export type AnswerOf<Exact extends Contract> = Exact['answer'] extends z.ZodType ? z.output<Exact['answer']> : undefined
