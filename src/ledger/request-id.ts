import { randomUUID } from 'node:crypto'

/** The ledger row's id, as a UUID in its usual text form. */
export type RequestId = string & { readonly __brand: 'RequestId' }

const partitionMax = 0xfff

/**
 * A UUIDv7 whose twelve free bits after the version contain the ledger's partition, so that a request is found by its id alone when
 * the ledger has several partitions. The other 62 bits are random.
 */
export function createRequestId(partition: number, nowMs: number): RequestId {
  if (partition < 0 || partition > partitionMax) throw new RangeError(`partition ${partition} is out of range`)
  const time = nowMs.toString(16).padStart(12, '0')
  const place = partition.toString(16).padStart(3, '0')
  // A random UUID ends in the same two variant bits and 62 random ones, which Node generates in bulk.
  return `${time.slice(0, 8)}-${time.slice(8)}-7${place}-${randomUUID().slice(19)}` as RequestId
}

/** The lowest id of a request that arrives at this instant or later. */
export function earliestRequestId(atMs: number): RequestId {
  return toUuid(Math.max(0, Math.floor(atMs)).toString(16).padStart(12, '0').padEnd(32, '0'))
}

/** The same in SQL, for an instant of the database's own clock. */
export function earliestRequestIdSql(instant: string): string {
  return `first_request_id(${instant})`
}

/** When the request arrived, by its node's clock: milliseconds since 1970. */
export function timeOf(id: RequestId): number {
  return Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16)
}

export function partitionOf(id: RequestId): number {
  return Number.parseInt(id.slice(15, 18), 16)
}

/** `req_` and 32 hex digits: the public form. */
export function formatRequestId(id: RequestId): string {
  return `req_${digits(id)}`
}

/** Undefined when the text is not one of our request ids. */
export function parseRequestId(text: string): RequestId | undefined {
  return /^req_[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}$/.test(text) ? toUuid(text.slice(4)) : undefined
}

/** The 32 hex digits, shared by the request id and the completion's id. */
export function digits(id: RequestId): string {
  return id.replaceAll('-', '')
}

function toUuid(hex: string): RequestId {
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}` as RequestId
}
