import type { z } from 'zod'
import type { Scope } from '../identity/management-keys.ts'
import type { Role } from '../identity/roles.ts'
import type { errorAnswers } from './error-answers.ts'

/**
 * The input and output of a route, and who may call it, defined once. Validates requests, types handlers and generates `openapi.json`.
 */
export type Contract = Form & Admission

type Form = {
  /** Unique. Names the client function. */
  readonly operation: string
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  /** Parameters in braces: `/api/keys/{id}`. */
  readonly path: string
  /** One sentence, without its full stop. */
  readonly summary: string
  /** What the summary has no room for. */
  readonly details?: string
  readonly parameters?: z.ZodObject
  readonly query?: z.ZodObject
  readonly headers?: z.ZodObject
  readonly body?: z.ZodType
  /** The body is a chat request. It is only described here; `inference/chat-request.ts` parses it, with its own error messages. */
  readonly isChat?: true
  /** Status 204 has no body, and so no `answer`. */
  readonly status?: 200 | 201 | 202 | 204
  readonly answer?: z.ZodType
  /** The `data:` of each event, when the answer is streamed on request. */
  readonly events?: z.ZodType
  /** Headers of the answer, beyond those of every answer. */
  readonly answerHeaders?: z.ZodObject
  /** Statuses of errors, beyond those that follow from the access and the input. */
  readonly refusedWith?: readonly (keyof typeof errorAnswers)[]
  readonly examples?: { readonly body?: unknown; readonly answer?: unknown }
  /** Called by programs without a key, not only by our own pages. Pages of other sites are refused nevertheless. */
  readonly isForPrograms?: true
  /** Concerns the person, whatever the account of the session. */
  readonly isForPerson?: true
  /** Reads many rows: rates are lower, per API key and per account, and long answers count as several. */
  readonly isHeavy?: true
  /** The answer is a file with one JSON object per line, or a stream with one per event, each as `answer` describes. */
  readonly linesAs?: 'application/x-ndjson' | 'text/event-stream'
  /** Other formats of the answer, selected by `Accept` or `?format=`. */
  readonly alsoAs?: readonly ('text/csv' | 'application/x-ndjson')[]
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
      /** The scope that a management key needs. Undefined: the route is for people only. */
      readonly scope?: Scope
    }

/** Keeps the exact types of a contract's schemas. */
export function contract<const Exact extends Contract>(exact: Exact): Exact {
  return exact
}

export type QueryOf<Exact extends Contract> = Exact['query'] extends z.ZodType ? z.output<Exact['query']> : undefined
export type BodyOf<Exact extends Contract> = Exact['body'] extends z.ZodType ? z.output<Exact['body']> : undefined
export type AnswerOf<Exact extends Contract> = Exact['answer'] extends z.ZodType ? z.output<Exact['answer']> : undefined

/** Contracts of one subject: a tag of the document. */
export type ContractGroup = {
  readonly name: string
  readonly about: string
  readonly contracts: readonly Contract[]
}
