import { useQuery } from '@tanstack/react-query'
import type { Check } from '../../../../src/receipts/verify-receipt.ts'
import { solvencyQuery } from '../../api/queries.ts'

export type IssuerCheck = Check<'issuer'>

/** Whether everything is consistent, and signed by another issuer. */
export function isFromElsewhere(checks: readonly Check[]): boolean {
  const wrong = checks.filter(({ ok }) => !ok)
  return wrong.length === 1 && wrong[0]!.name === 'issuer'
}

/**
 * Compares the issuer that a file names with the issuer of this service. Anyone can sign a file that is consistent in itself, and
 * readers take a verdict on this page for a verdict of this service. Undefined while the service is asked, or if there is no issuer.
 */
export function useIssuerCheck(issuer: string | undefined): IssuerCheck | undefined {
  const { data, isError } = useQuery({ ...solvencyQuery, enabled: issuer !== undefined })
  if (issuer === undefined) return undefined
  if (data === undefined && !isError) return undefined
  const own = typeof data?.issuer === 'string' ? data.issuer.toLowerCase() : undefined
  if (own === undefined) {
    const detail = `This service does not say which issuer signs its receipts. This file is signed by ${issuer}.`
    return { name: 'issuer', ok: true, pending: true, detail }
  }
  const ok = own === issuer.toLowerCase()
  const detail = ok ? `This service signs with ${own}.` : `The file names ${issuer}; this service signs with ${own}.`
  return { name: 'issuer', ok, pending: false, detail }
}
